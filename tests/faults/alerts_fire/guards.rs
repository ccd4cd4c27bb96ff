//! Alerts of a guard with a nearly full journal, and of a guard that is killed again and again.

use fencegate_tests::{
    alert_watch::AlertWatch,
    guard::{GuardFixture, StampedRequest},
    guarded::with_short_times,
    runbook::RunbookWalk,
};

/// The alert for a nearly full journal fires, and is resolved afterwards.
#[tokio::test]
async fn nearly_full_journal_alerts() {
    let watch = AlertWatch::shared().await;
    let beside = GuardFixture::new().await;
    let here = watch.installation("journal");
    let guard = with_short_times(beside.launch().await).with("/journal/max_size", "64KiB").start().await;
    here.set_targets(&[guard.admin]).await;
    let taken = "fencegate_guard_journal_bytes";
    let most = "fencegate_guard_journal_max_bytes";
    for name in 1_u64.. {
        let metrics = guard.metrics().await;
        if metrics.sum(taken, &[]) > 0.9 * metrics.sum(most, &[]) {
            break;
        }
        let dispatch = StampedRequest::new(&format!("k{name}"), 20 + name).once(name).keep(20);
        assert_eq!(guard.send(&dispatch.post("/pay")).await.status, 200);
    }
    let firing = here.wait_firing("FencegateJournalFull").await;
    here.wait_resolved(&firing).await;
}

/// The alerts for restarts and quarantine fire when a guard is killed repeatedly, and are resolved afterwards.
#[tokio::test]
async fn repeated_guard_kills_alert() {
    let watch = AlertWatch::shared().await;
    let beside = GuardFixture::new().await;
    let here = watch.installation("restarts");
    let mut guard = with_short_times(beside.launch().await)
        .with("/max_execution", "9s")
        .with_fixed_admin_port()
        .start()
        .await;
    here.set_targets(&[guard.admin]).await;
    let held = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/x")).await;
    for restarts in 1..=3 {
        guard = guard.kill().await.start().await;
        let changes =
            format!("changes(process_start_time_seconds{{job=\"{}\"}}[1m]) >= {restarts}", here.job());
        here.wait_for_value(&changes).await;
    }
    drop(held);
    let restarts = here.wait_firing("FencegateRestarts").await;
    let quarantine = here.wait_firing("FencegateGuardQuarantine").await;
    let file = guard.launch().path();
    RunbookWalk::for_alert(&restarts).with("/etc/fencegate/guard.yaml", file.display()).follow().await;
    let walk = RunbookWalk::for_alert(&quarantine)
        .with("127.0.0.1:9902", guard.admin)
        .with("/etc/fencegate/guard.yaml", file.display());
    // The runbook checks the gateway's policy here, but this test has no gateway.
    walk.skip("fencegate check --online /etc/fencegate/policy.yaml").follow().await;
    here.wait_resolved(&quarantine).await;
    here.wait_resolved(&restarts).await;
}
