//! A job that was skipped is told apart from a job that failed.

use fencegate_testkit::scratch;
use fencegate_tests::{
    gateway::{command, write_policy},
    leases::LeaseTokens,
    site::TestSite,
};

/// Reported as util-linux/util-linux#1180, discoteq/flock#20 and viafintech/cronlocker#10: the exit code for "the lock
/// is held" was one that the job may have too, so a job that failed looked like one that was skipped. This test covers
/// every exit code of a command that a script could confuse with ours.
#[tokio::test]
async fn failed_job_is_not_taken_for_skipped_one() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = fencegate_tests::gateway::Gateway::start(&tokens.policy(&site, "jobs")).await;
    let home = scratch::temp_dir();
    write_policy(home.path(), &site.policy("jobs").to_string());
    let file = home.path().join("policy.yaml").display().to_string();
    let lease = fencegate_tests::leases::ClientLease::acquire_exclusive(&gateway, "job/held").await;
    let run = async |key: &str, job: &[&str]| {
        let ours = ["lock", key, "--wait", "0s", "--conflict-exit-code", "0", "-c", &file, "--"];
        command(&[&ours[..], job].concat()).await.expect("started")
    };
    let skipped = run("job/held", &["true"]).await;
    assert_eq!(skipped.status.code(), Some(0), "{skipped:?}");
    assert!(skipped.stderr.is_empty(), "cron would send a letter: {skipped:?}");
    // Exit codes that a job may have itself, such as those of `timeout`.
    for (job, code) in [
        (&["timeout", "0.2", "sleep", "5"][..], 124),
        (&["sh", "-c", "exit 124"], 124),
        (&["sh", "-c", "exit 123"], 123),
        (&["sh", "-c", "exit 125"], 125),
        (&["sh", "-c", "exit 75"], 75),
        (&["sh", "-c", "kill -9 $$"], 137),
    ] {
        let failed = run("job/free", job).await;
        assert_eq!(failed.status.code(), Some(code), "{job:?}: {failed:?}");
    }
    assert_eq!(lease.release(&gateway).await.status, 204);
}
