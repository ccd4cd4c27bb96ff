//! No doubt ends before its time has really passed, even if a guard or the database stood still.

use std::{sync::Arc, time::Duration};

use fencegate_guard::{
    admission::DispatchEnd,
    postgres::{AdmitReply, PostgresStore},
};
use fencegate_process::clock::{Clock, ManualClock};
use fencegate_tests::shared_store::SharedStore;

use super::steps::{admit, barrier, claim, opened, runs};

/// How long the key `a` is closed by a doubt, as the guard is told.
async fn closed_for(guard: &PostgresStore, epoch: u64) -> Duration {
    match admit(guard, &claim("a", epoch, 1)).await {
        AdmitReply::Wait { doubt: Some(left), .. } => left,
        other => panic!("not in doubt any more: {other:?}"),
    }
}

#[tokio::test]
async fn what_has_passed_since_the_last_beat_is_not_taken_off_a_doubt() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = opened(&store, &clock, "one").await;
    let dispatch = runs(&guard, &claim("a", 20, 1)).await;
    clock.advance(Duration::from_millis(1500));
    let until = clock.now() + Duration::from_secs(1);
    guard.end(&dispatch, DispatchEnd::InDoubt { until });
    barrier(&guard).await;
    guard.send_heartbeat().await.expect("the database answers");
    assert!(closed_for(&guard, 21).await >= Duration::from_secs(1));
    clock.advance(Duration::from_secs(4));
    guard.send_heartbeat().await.expect("the database answers");
    runs(&guard, &claim("a", 22, 1)).await;
}

#[tokio::test]
async fn a_guard_that_stood_still_pushes_no_time_of_one_that_joined_meanwhile() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let still = opened(&store, &clock, "one").await;
    clock.advance(Duration::from_secs(60));
    let joined = store.guard(clock.clone(), "other").await;
    let dispatch = runs(&joined, &claim("a", 20, 1)).await;
    joined.end(&dispatch, DispatchEnd::InDoubt { until: clock.now() + Duration::from_secs(2) });
    barrier(&joined).await;
    still.send_heartbeat().await.expect("nobody has seen enough pass to take it for dead");
    joined.send_heartbeat().await.expect("the database answers");
    assert!(closed_for(&joined, 21).await >= Duration::from_secs(2));
}
