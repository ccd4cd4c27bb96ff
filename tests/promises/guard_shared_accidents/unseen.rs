//! A doubt of a live guard that checks its endpoint ends only with time in which this endpoint was seen to run, or by an
//! operator.

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{InFlightDispatch, PostgresAdmissionOutcome, PostgresStore};
use fencegate_guard_store::{
    admission::{LivenessProbeAnswer, LivenessProbeConfig},
    dispatch_target::DispatchTarget,
};
use fencegate_process::clock::{Clock, ManualClock};
use fencegate_tests::shared_store::{SharedStore, TERMS};

use super::steps::{admit, admit_running, advance_time, claim, open_guard, wait_processed};

const EVERY: Duration = Duration::from_secs(1);

fn service() -> DispatchTarget {
    DispatchTarget::whole_endpoint_target("service")
}

/// A guard that checks its endpoint, and another one that has the same store.
async fn open_two_guards(store: &SharedStore, clock: &Arc<ManualClock>) -> [PostgresStore; 2] {
    let one = open_guard(store, clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    one.start_probing(LivenessProbeConfig { endpoints: vec![service().endpoint], interval: EVERY });
    [one, other]
}

/// A dispatch that this guard has sent and of which it has seen no end.
async fn dispatch_unseen(guard: &PostgresStore, clock: &ManualClock, key: &str) -> InFlightDispatch {
    let lost = admit_running(guard, &claim(key, 20, 1)).await;
    guard.require_uptime_for_doubt(&lost, Some(service()), TERMS.max_execution, clock.now());
    wait_processed(guard).await;
    lost
}

async fn is_closed(guard: &PostgresStore, key: &str, epoch: u64) -> bool {
    match admit(guard, &claim(key, epoch, 1)).await {
        PostgresAdmissionOutcome::Wait { doubt: Some(_), .. } => true,
        PostgresAdmissionOutcome::Running { .. } => false,
        other => panic!("{key}: {other:?}"),
    }
}

/// The time of the store opens no key in doubt whose endpoint was not seen to run.
#[tokio::test]
async fn unseen_endpoint_keeps_key_closed() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let [one, other] = open_two_guards(&store, &clock).await;
    dispatch_unseen(&one, &clock, "a").await;
    assert_eq!(one.targets_to_probe(), [service()]);
    assert!(one.record_silent(&service()));
    advance_time(&clock, &[&one, &other], Duration::from_secs(60)).await;
    assert!(is_closed(&other, "a", 21).await);
    assert_eq!(one.silent_doubt_count(), 1);
    let [doubt] = &one.doubts().await.expect("the database answers")[..] else { panic!("one is in doubt") };
    assert_eq!((&doubt.place, doubt.silent), (&Some(service()), true));
    // The endpoint answers, and is seen for as long as the execution may take.
    let seen =
        || one.record_alive(&service(), LivenessProbeAnswer { asked: clock.now(), answered: clock.now() });
    assert!(seen());
    for second in 0..TERMS.max_execution.as_secs() {
        assert!(is_closed(&other, "a", 22 + second).await, "after {second} s");
        advance_time(&clock, &[&one, &other], EVERY).await;
        assert!(!seen());
    }
    wait_processed(&one).await;
    assert!(!is_closed(&other, "a", 40).await);
    assert!(one.targets_to_probe().is_empty());
}

/// A doubt that an operator resolves at another guard stays resolved: the guard that has sent the request makes no new
/// doubt of it.
#[tokio::test]
async fn doubt_resolved_elsewhere_stays_resolved() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let [one, other] = open_two_guards(&store, &clock).await;
    let lost = dispatch_unseen(&one, &clock, "a").await;
    advance_time(&clock, &[&one, &other], Duration::from_secs(20)).await;
    assert!(other.resolve_doubt(&lost.keys, lost.token).await.expect("the database answers"));
    advance_time(&clock, &[&one, &other], Duration::from_secs(2)).await;
    assert!(one.targets_to_probe().is_empty(), "nobody waits for an answer any more");
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
    assert!(!is_closed(&other, "a", 21).await);
}

/// A doubt of a dead guard ends by the time of the store, because no other guard checks its endpoint.
#[tokio::test]
async fn dead_guards_doubt_ends_by_clock() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let [one, other] = open_two_guards(&store, &clock).await;
    dispatch_unseen(&one, &clock, "a").await;
    advance_time(&clock, &[&one, &other], Duration::from_secs(20)).await;
    // The first guard sends no heartbeat in these seconds, and does not count as dead yet.
    advance_time(&clock, &[&other], Duration::from_secs(4)).await;
    assert!(is_closed(&other, "a", 21).await);
    advance_time(&clock, &[&other], Duration::from_secs(12)).await;
    assert!(!is_closed(&other, "a", 22).await);
}

/// A doubt of which a failover has lost the end can be resolved at another guard. The end was not yet at the standby that
/// took over, and the guard whose doubt it is reports it again.
#[tokio::test]
async fn doubt_lost_by_failover_is_resolvable() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let [one, other] = open_two_guards(&store, &clock).await;
    let lost = dispatch_unseen(&one, &clock, "a").await;
    assert_eq!(
        store.run("WITH lost AS (UPDATE at_work SET until = NULL RETURNING 1) SELECT count(*) FROM lost"),
        "1"
    );
    assert!(
        !other.resolve_doubt(&lost.keys, lost.token).await.expect("the database answers"),
        "it is in flight"
    );
    one.send_heartbeat().await.expect("the database answers");
    assert!(is_closed(&other, "a", 21).await);
    assert!(other.resolve_doubt(&lost.keys, lost.token).await.expect("the database answers"));
    assert!(!is_closed(&other, "a", 22).await);
}
