//! A restored store has what the backup had, and admits no token from before the restore. It is made of a complete
//! backup only, and replaces another store only on request and while no guard has that one open.

use std::{fs, os::unix::fs::FileExt as _, path::Path, time::Duration};

use fencegate_guard_store::store::{DurableKeyWatermarks, GuardStore as _, RedbStore};
use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::{PATIENCE, wait_until},
};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, write_policy},
    guard::{FLOOR, Guard, GuardFixture, StampedRequest, assert_refused},
    guarded::{GuardedSite, with_short_times},
    process::TestProcess,
};
use tokio::task::spawn_blocking;

use super::scene::{BackupFixture, RestoreTarget};

/// Asserts that a token which is new to every store is refused by the quarantine.
async fn assert_quarantined(guard: &Guard, epoch: u64) {
    let answer = guard.send(&StampedRequest::new("never/seen", epoch).post("/early")).await;
    assert_refused(&answer, "quarantine");
}

/// Repeats a request until it is served, because the store refuses gateways during its quarantine. Returns the answer.
async fn wait_served(gateway: &Gateway, path: &str) -> ClientResponse {
    let answered = async {
        loop {
            let answer = gateway.send(&TestRequest::post(path)).await;
            if answer.status == 200 {
                return answer;
            }
            assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{answer:?}");
        }
    };
    wait_until("to be let in again", answered, || gateway.log()).await
}

/// After a restore no token from before it passes, and the gateways continue with tokens above the new floor.
#[tokio::test]
async fn restore_refuses_older_tokens() {
    let guarded = GuardedSite::fresh().await;
    let source = BackupFixture::start_launch(with_short_times(guarded.launch().await)).await;
    let policy = guarded.policy("gw-1", &[source.guard.public]).with_linger("60s");
    let gateway = Gateway::start(&policy).await;
    let site = &guarded.site;
    wait_served(&gateway, "/pay/7").await;
    source.backup_report().await;
    // After the backup, one key gets its first token, and another key gets a newer token.
    wait_served(&gateway, "/pay/8").await;
    let second = Gateway::start(&guarded.policy("gw-2", &[source.guard.public])).await;
    let pending = second.begin(TestRequest::post("/pay/7"));
    let next = site.origin.wait_for_request("/pay/7", 2).await.expect_token();
    assert_eq!(pending.answer().await.status, 200);
    let last = site.origin.wait_for_request("/pay/8", 1).await.expect_token();
    let newest = next.number().max(last.number());

    let address = source.guard.public;
    let launch = source.guard.kill().await;
    let target = RestoreTarget::after_store_loss(launch, &source.backup);
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let report = target.restore_report(&["--policy", &file]).await;
    let floor = report["floor"].as_u64().expect("a number");
    assert!(floor >= newest, "{floor} {newest}");
    assert_ne!(report["store"], report["was"]);

    let guard = target.launch.start().await;
    assert_eq!(guard.public, address);
    assert_quarantined(&guard, floor + 1000).await;
    let ready = guard.admin("/ready").await;
    assert!(String::from_utf8_lossy(&ready.body).contains("made of a backup"), "{ready:?}");
    TestProcess::wait_ready(&guard).await;
    for key in ["account/7", "account/8", "account/9"] {
        for epoch in [next.number(), last.number(), newest, floor] {
            let stale = guard.send(&StampedRequest::new(key, epoch).with_dispatch(99).post("/stale")).await;
            assert_refused(&stale, "floor");
        }
    }
    assert_eq!(site.origin.count("/stale"), 0);
    for (path, before) in [("/pay/7", 2), ("/pay/8", 1)] {
        wait_served(&gateway, path).await;
        let token = site.origin.wait_for_request(path, before + 1).await.expect_token();
        assert!(token.number() > floor, "{token} {floor}");
        assert_eq!(site.origin.count(path), before + 1);
    }
}

/// An operation from before the backup is replayed, and one from after it is not known to the restored store.
#[tokio::test]
async fn restore_keeps_operations_before_backup() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    source.assert_executed(&StampedRequest::new("a", 20).once(1), "/before").await;
    source.backup_report().await;
    source.assert_executed(&StampedRequest::new("a", 30).once(2), "/after").await;
    let target = RestoreTarget::after_store_loss(source.guard.kill().await, &source.backup);
    target.restore_report(&["--floor", "40"]).await;
    let guard = target.launch.start().await;
    TestProcess::wait_ready(&guard).await;
    let repeat = guard.send(&StampedRequest::new("a", 50).once(1).post("/before")).await;
    assert_eq!((repeat.status, fixture.origin.count("/before")), (200, 1), "{repeat:?}");
    // This operation came after the backup, so it cannot be in the restored store. The documents instruct the operator
    // to check with the service.
    let repeat = guard.send(&StampedRequest::new("a", 51).once(2).post("/after")).await;
    assert_eq!((repeat.status, fixture.origin.count("/after")), (200, 2));
}

/// `guard restore` prints what is lost, how long nothing is admitted, and the floor.
#[tokio::test]
async fn restore_reports_losses() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    source.backup_report().await;
    let target = RestoreTarget::after_store_loss(source.guard.stop().await, &source.backup);
    let (code, out, log) = target.run_restore(&["--floor", "40"]).await;
    assert_eq!(code, Some(0), "{log}");
    for part in ["CARRIED OUT AGAIN", "No other guard", "lets nothing in for 3s", "floor        40"] {
        assert!(out.contains(part), "`{part}` is not in\n{out}");
    }
}

/// A backup that is truncated or altered is refused, and no store is made of it.
#[tokio::test]
async fn damaged_backup_makes_no_store() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    for n in 0..20 {
        source.assert_executed(&StampedRequest::new(&format!("k/{n}"), 20).once(n), "/pay").await;
    }
    source.backup_report().await;
    let whole = fs::read(&source.backup).expect("there");
    let target = RestoreTarget::after_store_loss(source.guard.stop().await, &source.backup);
    let floor = ["--floor", "40"];
    for length in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(&target.backup, &whole[..length]).expect("our own file");
        target.assert_restore_refused(&floor, "FG0611").await;
    }
    for at in [3, 40, whole.len() / 2, whole.len() - 1] {
        fs::write(&target.backup, &whole).expect("our own file");
        let file = fs::OpenOptions::new().write(true).open(&target.backup).expect("our own file");
        file.write_all_at(&[whole[at] ^ 1], at as u64).expect("written");
        target.assert_restore_refused(&floor, "FG0611").await;
    }
    fs::write(&target.backup, &whole).expect("our own file");
    assert_eq!(target.restore_report(&floor).await["operations"], 20);
}

/// A restore that is killed leaves no store that a guard would open, and can be repeated.
#[tokio::test]
async fn killed_restore_can_be_repeated() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    for n in 0..20 {
        source.assert_executed(&StampedRequest::new("a", 20 + n).once(n), "/pay").await;
    }
    source.backup_report().await;
    let target = RestoreTarget::after_store_loss(source.guard.kill().await, &source.backup);
    let words = [
        "FAILPOINTS=amid_restore=1*sleep(60000)".to_owned(),
        scratch::binaries().join("fencegate").display().to_string(),
        "guard".into(),
        "restore".into(),
        target.backup.display().to_string(),
        "-c".into(),
        target.file.display().to_string(),
        "--floor".into(),
        "60".into(),
    ];
    let child = ChildProcess::spawn("env", words).expect("setpriv");
    let (child, stands) = spawn_blocking(move || {
        let stands = child.wait_line(|line| line.contains("amid_restore"), PATIENCE);
        (child, stands)
    })
    .await
    .expect("no panic");
    stands.expect("amid a restore");
    // A second restore does not take over a store that is still being made.
    let (code, _, log) = target.run_restore(&["--floor", "60"]).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("FG0614"), "{log}");
    child.signal(Signal::KILL).expect("our own child");
    assert!(child.wait(PATIENCE).is_some());

    let output = target.launch.expect_start_failure().await;
    assert_eq!(output.status.code(), Some(1), "it started without a store");
    let half = target.launch.store().with_extension("redb.restoring");
    assert!(half.exists(), "killed too early");
    fs::rename(&half, target.launch.store()).expect("our own files");
    assert_eq!(target.launch.expect_start_failure().await.status.code(), Some(1), "half a store is none");
    fs::rename(target.launch.store(), &half).expect("our own files");
    target.restore_report(&["--floor", "60"]).await;
    assert!(!half.exists());
    let guard = target.launch.start().await;
    TestProcess::wait_ready(&guard).await;
    let repeat = guard.send(&StampedRequest::new("a", 70).once(3).post("/pay")).await;
    assert_eq!((repeat.status, fixture.origin.count("/pay")), (200, 20));
}

/// A restore over a store needs `--replace` and a stopped guard, and moves the old store aside.
#[tokio::test]
async fn restore_needs_replace_and_stopped_guard() {
    let fixture = GuardFixture::new().await;
    let source = BackupFixture::start(&fixture).await;
    source.assert_executed(&StampedRequest::new("a", 20), "/pay").await;
    source.backup_report().await;
    source.assert_executed(&StampedRequest::new("a", 50), "/pay").await;
    let target = RestoreTarget::new(source.guard.launch().clone(), &source.backup);
    let floor = ["--floor", "60"];
    for more in [&floor[..], &["--floor", "60", "--replace"]] {
        let (code, _, log) = target.run_restore(more).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("FG0614"), "{log}");
    }
    source.assert_executed(&StampedRequest::new("a", 51), "/pay").await;
    source.guard.stop().await;
    target.assert_restore_refused(&floor, "--replace").await;
    // The old store has a token above this floor, which the backup has not.
    let (code, _, log) = target.run_restore(&["--floor", "50", "--replace"]).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("FG0615"), "{log}");
    let report = target.restore_report(&["--floor", "60", "--replace"]).await;
    let aside = report["moved_aside"].as_str().expect("a path");
    let old = RedbStore::open(Path::new(aside)).expect("a store").recover(Duration::ZERO).expect("readable");
    let highest = old.marks.values().map(DurableKeyWatermarks::highest).max();
    assert_eq!((highest, old.floor), (Some(51), FLOOR), "it is what it was");

    // An unreadable store is also replaced only with `--replace`.
    fs::write(target.launch.store(), b"no store at all").expect("our own file");
    target.assert_restore_refused(&floor, "FG0614").await;
    target.restore_report(&["--floor", "60", "--replace"]).await;
    let guard = target.launch.start().await;
    assert_quarantined(&guard, 70).await;
}

/// A restore refuses a floor below the newest token of the backup, and the policy of another ZooKeeper.
#[tokio::test]
async fn restore_checks_floor_and_ensemble() {
    let guarded = GuardedSite::fresh().await;
    let source = BackupFixture::start_launch(with_short_times(
        guarded.launch_of("0123456789abcdef0123456789abcdef").await,
    ))
    .await;
    source.assert_executed(&StampedRequest::new("a", guarded.floor + 50), "/pay").await;
    source.backup_report().await;
    let target = RestoreTarget::after_store_loss(source.guard.stop().await, &source.backup);
    target.assert_restore_refused(&["--floor", &(guarded.floor + 49).to_string()], "FG0615").await;
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &guarded.site.policy("operator").to_string()).display().to_string();
    target.assert_restore_refused(&["--policy", &file], "FG0615").await;
    // No token can be above this floor.
    let (code, _, log) = target.run_restore(&["--floor", "9223372036854775808"]).await;
    assert!(code == Some(2) && log.contains("--floor"), "{log}");
    target.restore_report(&["--floor", &(guarded.floor + 50).to_string()]).await;
}
