//! No doubt ends before its time has really passed, even if a guard or the database stood still.

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{PostgresAdmissionOutcome, PostgresStore};
use fencegate_guard_store::admission::DispatchEnd;
use fencegate_process::clock::{Clock, ManualClock};
use fencegate_tests::shared_store::SharedStore;

use super::steps::{admit, admit_running, claim, open_guard, wait_processed};

/// The time for which the key `a` is closed by a doubt, as the store answers this guard.
async fn doubt_left(guard: &PostgresStore, epoch: u64) -> Duration {
    match admit(guard, &claim("a", epoch, 1)).await {
        PostgresAdmissionOutcome::Wait { doubt: Some(left), .. } => left,
        other => panic!("not in doubt any more: {other:?}"),
    }
}

/// The time that has passed since the last heartbeat is not taken off a new doubt.
#[tokio::test]
async fn elapsed_time_does_not_shorten_doubt() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store, &clock, "one").await;
    let dispatch = admit_running(&guard, &claim("a", 20, 1)).await;
    clock.advance(Duration::from_millis(1500));
    let until = clock.now() + Duration::from_secs(1);
    guard.end_dispatch(&dispatch, DispatchEnd::InDoubt { until });
    wait_processed(&guard).await;
    guard.send_heartbeat().await.expect("the database answers");
    assert!(doubt_left(&guard, 21).await >= Duration::from_secs(1));
    clock.advance(Duration::from_secs(4));
    guard.send_heartbeat().await.expect("the database answers");
    admit_running(&guard, &claim("a", 22, 1)).await;
}

/// A guard that stood still advances no time of a guard that joined meanwhile.
#[tokio::test]
async fn paused_guard_does_not_advance_time() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let still = open_guard(&store, &clock, "one").await;
    clock.advance(Duration::from_secs(60));
    let joined = store.guard(clock.clone(), "other").await;
    let dispatch = admit_running(&joined, &claim("a", 20, 1)).await;
    joined.end_dispatch(&dispatch, DispatchEnd::InDoubt { until: clock.now() + Duration::from_secs(2) });
    wait_processed(&joined).await;
    still.send_heartbeat().await.expect("nobody has seen enough pass to take it for dead");
    joined.send_heartbeat().await.expect("the database answers");
    assert!(doubt_left(&joined, 21).await >= Duration::from_secs(2));
}
