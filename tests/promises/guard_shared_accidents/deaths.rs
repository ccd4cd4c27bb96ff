//! A guard that is killed, or stopped for so long that the others count it as dead, keeps its keys closed until its
//! dispatches are over, and decides nothing any more.

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{
    GuardMembershipLostError as Gone, JournalWriteOutcome, OperationLockReply, PostgresAdmissionOutcome,
    PostgresError, PostgresOperationLock, PostgresStore,
};
use fencegate_guard_store::{
    admission::DispatchEnd,
    operation::{JournalEntryState, JournalUpdate, OperationJournalEntry},
};
use fencegate_policies::operation::OperationId;
use fencegate_process::clock::{Clock, ManualClock};
use fencegate_tests::shared_store::{SharedStore, TERMS};

use super::steps::{admit, admit_running, advance_time, claim, open_guard, wait_processed};

/// A guard that was killed, or stopped for so long that the others count it as dead, keeps the keys closed that it had at
/// work until its dispatches are over, and no others.
#[tokio::test]
async fn dead_guard_closes_its_keys_only() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    let running = admit_running(&one, &claim("a", 20, 1)).await;
    let lease = one.membership();
    assert!(lease.is_valid(clock.now()));
    // The guard is stopped here, after it got the answer.
    let since = clock.now();
    admit_running(&other, &claim("b", 21, 1)).await;
    let next = claim("a", 22, 1);
    let name = other.new_dispatch_name();
    let first = other.admit(&next, name, None).await.expect("the database answers");
    assert!(matches!(first, PostgresAdmissionOutcome::Wait { doubt: None, .. }), "{first:?}");
    advance_time(&clock, &[&other], Duration::from_millis(4500)).await;
    assert!(!lease.is_valid(clock.now()), "it sends nothing any more");
    let now_doubtful = other.check_and_register(&next, name, None).await.expect("the database answers");
    let PostgresAdmissionOutcome::Wait { doubt: Some(left), .. } = now_doubtful else {
        panic!("{now_doubtful:?}")
    };
    assert!(clock.now() + left >= since + TERMS.send_within + TERMS.max_execution, "{left:?} is too early");
    // The first guard runs again.
    assert_eq!(one.send_heartbeat().await, Err(PostgresError::Lost(Gone::Dead)));
    assert_eq!(one.wait_for_loss().await, Gone::Dead);
    assert!(!lease.is_valid(clock.now()));
    let refused = one.admit(&claim("c", 30, 1), one.new_dispatch_name(), None).await;
    assert_eq!(refused.map(|reply| format!("{reply:?}")), Err(PostgresError::Lost(Gone::Dead)));
    advance_time(&clock, &[&other], left).await;
    let second = other.check_and_register(&next, name, None).await.expect("the database answers");
    let PostgresAdmissionOutcome::Running { dispatch, .. } = second else { panic!("{second:?}") };
    // The first guard may still report ends of its own dispatch. They do not end the dispatch of the other guard.
    one.end_dispatch(&running, DispatchEnd::Known);
    one.end_dispatch(&running, DispatchEnd::InDoubt { until: clock.now() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let third = admit(&other, &claim("a", 23, 1)).await;
    assert!(matches!(third, PostgresAdmissionOutcome::Wait { doubt: None, .. }), "{third:?}");
    other.end_dispatch(&dispatch, DispatchEnd::Known);
    wait_processed(&other).await;
    admit_running(&other, &claim("a", 24, 1)).await;
}

/// A guard that counts as dead and has not noticed admits nothing: its next claim is refused, and nothing is recorded as
/// at work.
#[tokio::test]
async fn unaware_dead_guard_admits_nothing() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    wait_processed(&one).await;
    let other = store.guard(clock.clone(), "other").await;
    advance_time(&clock, &[&other], Duration::from_millis(4500)).await;
    let refused = one.admit(&claim("a", 30, 1), one.new_dispatch_name(), None).await;
    assert_eq!(refused.map(|reply| format!("{reply:?}")), Err(PostgresError::Lost(Gone::Dead)));
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
}

/// Guards outlive a database that was away for longer than a lease. All guards were cut off alike, so the first guard
/// that comes back does not count the others as dead.
#[tokio::test]
async fn guards_survive_long_database_outage() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    advance_time(&clock, &[&one, &other], Duration::from_secs(1)).await;
    clock.advance(Duration::from_secs(60));
    assert_eq!(other.send_heartbeat().await, Ok(()));
    advance_time(&clock, &[&other], Duration::from_secs(3)).await;
    assert_eq!(one.send_heartbeat().await, Ok(()), "it had no database, as the other");
    admit_running(&one, &claim("a", 20, 1)).await;
    // A guard that does not come back still counts as dead.
    advance_time(&clock, &[&other], Duration::from_millis(4500)).await;
    assert_eq!(one.send_heartbeat().await, Err(PostgresError::Lost(Gone::Dead)));
}

fn operation(first: u8) -> OperationId {
    OperationId::from_bytes([first; 32])
}

pub(super) async fn reserve_operation(guard: &PostgresStore, id: OperationId) -> PostgresOperationLock {
    match guard.reserve(id).await.expect("the database answers") {
        OperationLockReply::Acquired(held) => held,
        OperationLockReply::Held(_) => panic!("nobody has it"),
    }
}

/// Only the guard with the right over an operation decides it, and a guard that counts as dead does not.
#[tokio::test]
async fn one_guard_decides_each_operation() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    let held = reserve_operation(&one, operation(1)).await;
    assert!(matches!(other.reserve(operation(1)).await, Ok(OperationLockReply::Held(_))));
    let entry = entry(20);
    let reply = one.admit(&claim("a", 20, 1), one.new_dispatch_name(), Some((&held, &entry))).await;
    let Ok(PostgresAdmissionOutcome::Running { dispatch, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!(other.operation(&operation(1)).await, Ok(Some(entry.clone())), "in one transaction");
    assert_eq!(
        (other.count_unknown(9).await, other.unresolved_operations(9).await),
        (Ok(0), Ok(vec![])),
        "it is in hand"
    );
    // A dropped right goes back to the store.
    drop(reserve_operation(&one, operation(2)).await);
    wait_processed(&one).await;
    drop(reserve_operation(&other, operation(2)).await);
    // The first guard counts as dead.
    advance_time(&clock, &[&other], Duration::from_millis(4500)).await;
    let taken = reserve_operation(&other, operation(1)).await;
    assert_eq!(other.operation(&operation(1)).await, Ok(Some(entry.clone())));
    assert_eq!(
        other.may_still_be_executing(&entry.keys, entry.token).await,
        Ok(true),
        "its time is not over"
    );
    let written =
        one.end_dispatch_with_outcome(&dispatch, DispatchEnd::Known, held, JournalUpdate::Forget).await;
    assert_eq!(written, Ok(JournalWriteOutcome::NotHeld), "whoever decides has read it as it is");
    assert_eq!(other.operation(&operation(1)).await, Ok(Some(entry)));
    assert_eq!(other.update_entry(&taken, JournalUpdate::Forget).await, Ok(JournalWriteOutcome::Durable));
    assert_eq!(other.operation(&operation(1)).await, Ok(None));
}

pub(super) fn entry(epoch: u64) -> OperationJournalEntry {
    let claim = claim("a", epoch, 1);
    OperationJournalEntry {
        format: 1,
        fingerprint: "f".into(),
        keys: claim.keys.to_vec(),
        token: claim.token,
        method: "POST".into(),
        target: "/\u{0}'\"\\".into(),
        name: None,
        askable: false,
        admitted: 0,
        began: Some(0),
        keep: 10,
        state: JournalEntryState::Admitted,
    }
}
