//! A guard that remembers much, and one that is killed again and again.

use fencegate_tests::{
    guard::{GuardFixture, StampedRequest},
    guarded::quick,
    runbook::RunbookWalk,
    watch::AlertWatch,
};

#[tokio::test]
async fn a_journal_that_fills_up() {
    let (watch, beside) = (AlertWatch::shared().await, GuardFixture::fresh().await);
    let here = watch.installation("journal");
    let guard = quick(beside.launch().await).with("/journal/max_size", "64KiB").start().await;
    here.looks_at(&[guard.admin]).await;
    let (taken, most) = ("fencegate_guard_journal_bytes", "fencegate_guard_journal_max_bytes");
    for name in 1_u64.. {
        let metrics = guard.metrics().await;
        if metrics.sum(taken, &[]) > 0.9 * metrics.sum(most, &[]) {
            break;
        }
        let dispatch = StampedRequest::new(&format!("k{name}"), 20 + name).once(name).keep(20);
        assert_eq!(guard.send(&dispatch.post("/pay")).await.status, 200);
    }
    let firing = here.fires("FencegateJournalFull").await;
    here.ends(&firing).await;
}

#[tokio::test]
async fn a_guard_that_is_killed_again_and_again() {
    let (watch, beside) = (AlertWatch::shared().await, GuardFixture::fresh().await);
    let here = watch.installation("restarts");
    let mut guard = quick(beside.launch().await).with("/max_execution", "9s").staying().start().await;
    here.looks_at(&[guard.admin]).await;
    let held = beside.origin.holds_one(&guard, StampedRequest::new("a", 20).post("/x")).await;
    for restarts in 1..=3 {
        guard = guard.dies().await.start().await;
        let changes =
            format!("changes(process_start_time_seconds{{job=\"{}\"}}[1m]) >= {restarts}", here.job());
        here.sees(&changes).await;
    }
    drop(held);
    let restarts = here.fires("FencegateRestarts").await;
    let quarantine = here.fires("FencegateGuardQuarantine").await;
    let file = guard.launch().path();
    RunbookWalk::of(&restarts).with("/etc/fencegate/guard.yaml", file.display()).through().await;
    let walk = RunbookWalk::of(&quarantine)
        .with("127.0.0.1:9902", guard.admin)
        .with("/etc/fencegate/guard.yaml", file.display());
    // There is no gateway here.
    walk.without("fencegate check --online /etc/fencegate/policy.yaml").through().await;
    here.ends(&quarantine).await;
    here.ends(&restarts).await;
}
