//! Where guards with one store have different times, the longest counts at each of them.

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{GuardTimeLimits, PostgresAdmissionOutcome, PostgresStore};
use fencegate_guard_store::admission::DispatchEnd;
use fencegate_process::{
    clock::{Clock, ManualClock},
    randomness::SystemRandomness,
};
use fencegate_tests::shared_store::{SharedStore, TERMS};

use super::steps::{admit, admit_running, advance_time, claim, open_guard, wait_processed};

const LONGEST: Duration = Duration::from_secs(20);

async fn doubt_left(guard: &PostgresStore, key: &str, epoch: u64) -> Duration {
    match admit(guard, &claim(key, epoch, 1)).await {
        PostgresAdmissionOutcome::Wait { doubt: Some(left), .. } => left,
        other => panic!("{other:?}"),
    }
}

/// A doubt at one guard lasts for the longest `max_execution` of all. Here a rolling change upwards has reached one of
/// two guards.
#[tokio::test]
async fn doubt_lasts_longest_max_execution() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    let terms = GuardTimeLimits { max_execution: LONGEST, ..TERMS };
    let changed =
        PostgresStore::open(&store.place, terms, clock.clone(), Arc::new(SystemRandomness), "changed").await;
    let changed = changed.expect("it can be opened");
    advance_time(&clock, &[&one, &changed], Duration::from_secs(1)).await;
    let running = admit_running(&one, &claim("a", 20, 1)).await;
    let left_behind = admit_running(&one, &claim("b", 20, 1)).await;
    one.end_dispatch(&running, DispatchEnd::InDoubt { until: clock.now() + TERMS.max_execution });
    wait_processed(&one).await;
    assert!(doubt_left(&changed, "a", 21).await >= LONGEST);
    one.shut_down_cleanly().await.expect("in order");
    assert!(doubt_left(&changed, "b", 21).await >= LONGEST);
    drop(left_behind);
    // When all requests under the longer time are over, that time no longer counts.
    let other = store.guard(clock.clone(), "other").await;
    changed.shut_down_cleanly().await.expect("in order");
    advance_time(&clock, &[&other], LONGEST + TERMS.send_within + Duration::from_secs(4)).await;
    let running = admit_running(&other, &claim("c", 22, 1)).await;
    other.end_dispatch(&running, DispatchEnd::InDoubt { until: clock.now() + TERMS.max_execution });
    wait_processed(&other).await;
    assert!(doubt_left(&other, "c", 23).await < LONGEST);
}

/// The doubt that a leaving guard leaves behind includes its `begun_within`: behind a filter the length of an execution
/// counts from when it may still begin.
#[tokio::test]
async fn doubt_includes_filter_begin_window() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let other = open_guard(&store, &clock, "other").await;
    let begun_within = Duration::from_secs(7);
    let terms = GuardTimeLimits { begun_within, ..TERMS };
    let one =
        PostgresStore::open(&store.place, terms, clock.clone(), Arc::new(SystemRandomness), "one").await;
    let one = one.expect("it can be opened");
    advance_time(&clock, &[&one, &other], Duration::from_secs(1)).await;
    let left_behind = admit_running(&one, &claim("a", 20, 1)).await;
    one.shut_down_cleanly().await.expect("in order");
    assert!(doubt_left(&other, "a", 21).await >= begun_within + TERMS.max_execution);
    drop(left_behind);
}
