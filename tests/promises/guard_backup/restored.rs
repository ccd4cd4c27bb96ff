//! What a restored store knows, and what it does not let in.

use std::{fs, os::unix::fs::FileExt as _, path::Path, time::Duration};

use fencegate::demo::child::{ChildProcess, Signal};
use fencegate_guard::store::{Epochs, RedbStore, Store as _};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, write_policy},
    guard::{FLOOR, Guard, GuardFixture, StampedRequest, assert_refused},
    guarded::{GuardedSite, with_short_times},
    process::TestProcess,
    scratch,
    wait::{PATIENCE, wait_until},
};
use tokio::task::spawn_blocking;

use super::scene::{BackupFixture, RestoreTarget};

/// Asserts that a token which is new to every store is refused by the quarantine.
async fn is_closed(guard: &Guard, epoch: u64) {
    let answer = guard.send(&StampedRequest::new("never/seen", epoch).post("/early")).await;
    assert_refused(&answer, "quarantine");
}

/// The answer of a gateway that repeats its request. The gateway is refused while the quarantine of the store lasts.
async fn served(gateway: &Gateway, path: &str) -> ClientResponse {
    let asked = async {
        loop {
            let answer = gateway.send(&TestRequest::post(path)).await;
            if answer.status == 200 {
                return answer;
            }
            assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{answer:?}");
        }
    };
    wait_until("to be let in again", asked, || gateway.log()).await
}

#[tokio::test]
async fn after_a_restore_no_token_of_before_passes_and_gateways_follow() {
    let guarded = GuardedSite::fresh().await;
    let kept = BackupFixture::of(with_short_times(guarded.launch().await)).await;
    let policy = guarded.policy("gw-1", &[kept.guard.public]).with_linger("60s");
    let gateway = Gateway::start(&policy).await;
    let site = &guarded.site;
    served(&gateway, "/pay/7").await;
    kept.backed_up().await;
    // One key has a newer token than in the backup, and one is not in it.
    served(&gateway, "/pay/8").await;
    let second = Gateway::start(&guarded.policy("gw-2", &[kept.guard.public])).await;
    let asked = second.begin(TestRequest::post("/pay/7"));
    let next = site.origin.request("/pay/7", 2).await.expect_token();
    assert_eq!(asked.answer().await.status, 200);
    let last = site.origin.request("/pay/8", 1).await.expect_token();
    let newest = next.number().max(last.number());

    let address = kept.guard.public;
    let launch = kept.guard.kill().await;
    let elsewhere = RestoreTarget::lost(launch, &kept.backup);
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let told = elsewhere.restored(&["--policy", &file]).await;
    let floor = told["floor"].as_u64().expect("a number");
    assert!(floor >= newest, "{floor} {newest}");
    assert_ne!(told["store"], told["was"]);

    let guard = elsewhere.launch.start().await;
    assert_eq!(guard.public, address);
    is_closed(&guard, floor + 1000).await;
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
        served(&gateway, path).await;
        let token = site.origin.request(path, before + 1).await.expect_token();
        assert!(token.number() > floor, "{token} {floor}");
        assert_eq!(site.origin.count(path), before + 1);
    }
}

#[tokio::test]
async fn an_operation_of_before_is_answered_as_ever_and_one_of_after_is_not_known() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    kept.executes(&StampedRequest::new("a", 20).once(1), "/before").await;
    kept.backed_up().await;
    kept.executes(&StampedRequest::new("a", 30).once(2), "/after").await;
    let elsewhere = RestoreTarget::lost(kept.guard.kill().await, &kept.backup);
    elsewhere.restored(&["--floor", "40"]).await;
    let guard = elsewhere.launch.start().await;
    TestProcess::wait_ready(&guard).await;
    let repeat = guard.send(&StampedRequest::new("a", 50).once(1).post("/before")).await;
    assert_eq!((repeat.status, beside.origin.count("/before")), (200, 1), "{repeat:?}");
    // This operation came after the backup, so the restored store cannot know it. The documents tell the operator to
    // ask the service.
    let repeat = guard.send(&StampedRequest::new("a", 51).once(2).post("/after")).await;
    assert_eq!((repeat.status, beside.origin.count("/after")), (200, 2));
}

#[tokio::test]
async fn what_a_restore_loses_is_said() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    kept.backed_up().await;
    let elsewhere = RestoreTarget::lost(kept.guard.stop().await, &kept.backup);
    let (code, out, log) = elsewhere.restores(&["--floor", "40"]).await;
    assert_eq!(code, Some(0), "{log}");
    for part in ["CARRIED OUT AGAIN", "No other guard", "lets nothing in for 3s", "floor        40"] {
        assert!(out.contains(part), "`{part}` is not in\n{out}");
    }
}

#[tokio::test]
async fn what_is_not_a_whole_backup_makes_no_store() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    for n in 0..20 {
        kept.executes(&StampedRequest::new(&format!("k/{n}"), 20).once(n), "/pay").await;
    }
    kept.backed_up().await;
    let whole = fs::read(&kept.backup).expect("there");
    let elsewhere = RestoreTarget::lost(kept.guard.stop().await, &kept.backup);
    let floor = ["--floor", "40"];
    for length in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(&elsewhere.backup, &whole[..length]).expect("our own file");
        elsewhere.refuses(&floor, "FG0611").await;
    }
    for at in [3, 40, whole.len() / 2, whole.len() - 1] {
        fs::write(&elsewhere.backup, &whole).expect("our own file");
        let file = fs::OpenOptions::new().write(true).open(&elsewhere.backup).expect("our own file");
        file.write_all_at(&[whole[at] ^ 1], at as u64).expect("written");
        elsewhere.refuses(&floor, "FG0611").await;
    }
    fs::write(&elsewhere.backup, &whole).expect("our own file");
    assert_eq!(elsewhere.restored(&floor).await["operations"], 20);
}

#[tokio::test]
async fn a_restore_that_is_killed_leaves_no_store_and_can_be_done_again() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    for n in 0..20 {
        kept.executes(&StampedRequest::new("a", 20 + n).once(n), "/pay").await;
    }
    kept.backed_up().await;
    let elsewhere = RestoreTarget::lost(kept.guard.kill().await, &kept.backup);
    let words = [
        "FAILPOINTS=amid_restore=1*sleep(60000)".to_owned(),
        scratch::binaries().join("fencegate").display().to_string(),
        "guard".into(),
        "restore".into(),
        elsewhere.backup.display().to_string(),
        "-c".into(),
        elsewhere.file.display().to_string(),
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
    // Another one does not take over what is still being made.
    let (code, _, log) = elsewhere.restores(&["--floor", "60"]).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("FG0614"), "{log}");
    child.signal(Signal::KILL).expect("our own child");
    assert!(child.wait(PATIENCE).is_some());

    let output = elsewhere.launch.expect_start_failure().await;
    assert_eq!(output.status.code(), Some(1), "it started without a store");
    let half = elsewhere.launch.store().with_extension("redb.restoring");
    assert!(half.exists(), "killed too early");
    fs::rename(&half, elsewhere.launch.store()).expect("our own files");
    assert_eq!(elsewhere.launch.expect_start_failure().await.status.code(), Some(1), "half a store is none");
    fs::rename(elsewhere.launch.store(), &half).expect("our own files");
    elsewhere.restored(&["--floor", "60"]).await;
    assert!(!half.exists());
    let guard = elsewhere.launch.start().await;
    TestProcess::wait_ready(&guard).await;
    let repeat = guard.send(&StampedRequest::new("a", 70).once(3).post("/pay")).await;
    assert_eq!((repeat.status, beside.origin.count("/pay")), (200, 20));
}

#[tokio::test]
async fn a_store_that_is_there_is_not_lost_and_a_guard_at_work_is_not_robbed_of_it() {
    let beside = GuardFixture::new().await;
    let kept = BackupFixture::before(&beside).await;
    kept.executes(&StampedRequest::new("a", 20), "/pay").await;
    kept.backed_up().await;
    kept.executes(&StampedRequest::new("a", 50), "/pay").await;
    let there = RestoreTarget::at(kept.guard.launch().clone(), &kept.backup);
    let floor = ["--floor", "60"];
    for more in [&floor[..], &["--floor", "60", "--replace"]] {
        let (code, _, log) = there.restores(more).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("FG0614"), "{log}");
    }
    kept.executes(&StampedRequest::new("a", 51), "/pay").await;
    kept.guard.stop().await;
    there.refuses(&floor, "--replace").await;
    // The old store has seen more than the backup.
    let (code, _, log) = there.restores(&["--floor", "50", "--replace"]).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("FG0615"), "{log}");
    let told = there.restored(&["--floor", "60", "--replace"]).await;
    let aside = told["moved_aside"].as_str().expect("a path");
    let old = RedbStore::open(Path::new(aside)).expect("a store").load(Duration::ZERO).expect("readable");
    let highest = old.marks.values().map(Epochs::highest).max();
    assert_eq!((highest, old.floor), (Some(51), FLOOR), "it is what it was");

    // An unreadable store is replaced as well.
    fs::write(there.launch.store(), b"no store at all").expect("our own file");
    there.refuses(&floor, "FG0614").await;
    there.restored(&["--floor", "60", "--replace"]).await;
    let guard = there.launch.start().await;
    is_closed(&guard, 70).await;
}

#[tokio::test]
async fn a_floor_that_is_too_low_is_refused_and_so_is_another_zookeeper() {
    let guarded = GuardedSite::fresh().await;
    let kept =
        BackupFixture::of(with_short_times(guarded.launch_of("0123456789abcdef0123456789abcdef").await))
            .await;
    kept.executes(&StampedRequest::new("a", guarded.floor + 50), "/pay").await;
    kept.backed_up().await;
    let elsewhere = RestoreTarget::lost(kept.guard.stop().await, &kept.backup);
    elsewhere.refuses(&["--floor", &(guarded.floor + 49).to_string()], "FG0615").await;
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &guarded.site.policy("operator").to_string()).display().to_string();
    elsewhere.refuses(&["--policy", &file], "FG0615").await;
    // No token is above it, and none ever will be.
    let (code, _, log) = elsewhere.restores(&["--floor", "9223372036854775808"]).await;
    assert!(code == Some(2) && log.contains("--floor"), "{log}");
    elsewhere.restored(&["--floor", &(guarded.floor + 50).to_string()]).await;
}
