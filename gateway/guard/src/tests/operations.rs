//! The result of a repeated operation, and the operators' actions on operations with an unknown outcome.

use fencegate_guard_store::operation::ResolutionSource;

use super::*;
use crate::{journal::ReserveUnresolvedOutcome, reserve::OperationReservation};

const KEEP: u64 = 60;

/// The journal's record for a request that does not wait.
async fn find_operation(
    site: &TestGuard,
    wanted: IdempotentRequest,
) -> Result<JournalLookup, error::DispatchRefusedError> {
    let mut client = AlwaysWaitingClient;
    site.guard.reserve_and_look_up(wanted, &mut ClientWaitLimit::new(&mut client, Duration::ZERO)).await
}

/// The request that is the operation of this number.
fn request_of(number: u64) -> IdempotentRequest {
    operation_request(number, KEEP, &TestGuard::claim("a", 100_000))
}

async fn admitted(site: &TestGuard, number: u64) -> AdmittedExecution {
    let claim = TestGuard::claim("a", 100 + number);
    let mut client = AlwaysWaitingClient;
    let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::ZERO);
    let Ok(JournalLookup::New(reserved)) =
        site.guard.reserve_and_look_up(operation_request(number, KEEP, &claim), &mut wait_limit).await
    else {
        panic!("{number} is known")
    };
    assert_eq!(reserved.reference(), id(number).reference());
    site.guard.admit(claim, Some(reserved), &mut wait_limit).await.expect("the newest")
}

/// The outcome of the operation is unknown. Its key is not in doubt.
async fn leave_unknown(site: &TestGuard, number: u64) {
    admitted(site, number).await.complete(stored_response(502, None)).await.expect("nothing to write");
}

async fn unfinished(site: &TestGuard) -> Vec<OperationId> {
    let all = site.guard.unresolved_operations(10).await.expect("readable");
    all.into_iter().map(|(id, _)| id).collect()
}

/// The value of the gauge of unknown operations.
fn unknown_operations_gauge(site: &TestGuard) -> usize {
    site.guard.update_gauges();
    let text = String::from_utf8(site.families.encode()).expect("text");
    let line = text.lines().find(|line| line.starts_with("fencegate_operations_unknown")).expect("a gauge");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// An operation name that was used for another body or another key is refused as a mismatch.
#[tokio::test]
async fn reused_operation_name_is_mismatch() {
    let site = new_test_guard("");
    site.complete_operation(1, KEEP).await.expect("done");
    let mut other_body = request_of(1);
    other_body.operation.fingerprint = RequestFingerprint::from_bytes([2; 32]);
    let other_key = IdempotentRequest { keys: TestGuard::claim("b", 1).keys, ..request_of(1) };
    for other in [other_body, other_key] {
        assert_eq!(find_operation(&site, other).await.err(), Some(error::DispatchRefusedError::Mismatch));
    }
    assert!(
        matches!(find_operation(&site, request_of(1)).await, Ok(JournalLookup::Done(kept)) if kept.status == 200)
    );
}

/// An operation is in progress until it ends, and unknown if its outcome is unknown.
#[tokio::test]
async fn operation_without_outcome_becomes_unknown() {
    let site = new_test_guard("");
    let running = admitted(&site, 1).await;
    assert_eq!(
        find_operation(&site, request_of(1)).await.err(),
        Some(error::DispatchRefusedError::InProgress)
    );
    assert_eq!((unfinished(&site).await, unknown_operations_gauge(&site)), (vec![], 0), "it is running");
    running.complete(stored_response(502, None)).await.expect("nothing to write");
    assert_eq!((unfinished(&site).await, unknown_operations_gauge(&site)), (vec![id(1)], 1));
    let Ok(JournalLookup::Unknown(_reserved, entry)) = find_operation(&site, request_of(1)).await else {
        panic!("unknown")
    };
    assert_eq!(entry.state, operation::JournalEntryState::Admitted);
    // The request above holds the operation's lock, so no other one may resolve the operation.
    assert_eq!(unfinished(&site).await, vec![]);
    assert!(matches!(site.guard.reserve_unresolved(id(1)).await, Ok(ReserveUnresolvedOutcome::InProgress)));
}

/// An operation that the service did not take up, or that was not sent, may run again.
#[tokio::test]
async fn rejected_or_unsent_operation_runs_again() {
    let site = new_test_guard("");
    admitted(&site, 1).await.complete(stored_response(429, None)).await.expect("written");
    assert!(!site.is_known(1));
    admitted(&site, 2).await.cancel_unsent().await.expect("written");
    assert!(!site.is_known(2));
    for number in [1, 2] {
        assert!(matches!(find_operation(&site, request_of(number)).await, Ok(JournalLookup::New(_))));
    }
}

#[tokio::test]
async fn operator_resolves_only_unknown_operations() {
    let site = new_test_guard("");
    for number in [1, 2] {
        leave_unknown(&site, number).await;
    }
    site.complete_operation(3, KEEP).await.expect("done");
    for settled in [3, 4] {
        assert!(matches!(
            site.guard.reserve_unresolved(id(settled)).await,
            Ok(ReserveUnresolvedOutcome::Settled)
        ));
    }
    let Ok(ReserveUnresolvedOutcome::Taken(done, entry)) = site.guard.reserve_unresolved(id(1)).await else {
        panic!("unknown")
    };
    done.resolve_done(&entry, ResolutionSource::Operator).await.expect("written");
    assert!(matches!(find_operation(&site, request_of(1)).await, Ok(JournalLookup::DoneUnseen)));
    let Ok(ReserveUnresolvedOutcome::Taken(not_done, _)) = site.guard.reserve_unresolved(id(2)).await else {
        panic!("unknown")
    };
    not_done.resolve_not_done().await.expect("written");
    assert!(!site.is_known(2));
    drop(not_done);
    assert!(matches!(find_operation(&site, request_of(2)).await, Ok(JournalLookup::New(_))));
    assert_eq!((unfinished(&site).await, unknown_operations_gauge(&site)), (vec![], 0));
}

/// A finished operation can be forgotten by its reference; an unknown or reserved one cannot.
#[tokio::test]
async fn forget_removes_only_finished_operation() {
    let site = new_test_guard("");
    site.complete_operation(1, KEEP).await.expect("done");
    leave_unknown(&site, 2).await;
    let forget = async |number: u64| site.guard.forget(&id(number).reference()).await.expect("a sound store");
    assert!(!forget(2).await && site.is_known(2), "its outcome is unknown");
    assert!(!forget(3).await, "there is none");
    {
        // Another request holds the operation's lock.
        let mut client = AlwaysWaitingClient;
        let mut reservation = OperationReservation::new(&site.guard, id(1));
        let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::ZERO);
        reservation.acquire(&mut wait_limit).await.expect("free");
        assert!(!forget(1).await && site.is_known(1));
    }
    let by_reference = site.guard.find_by_reference(&id(1).reference()).await.expect("readable");
    assert_eq!(by_reference.map(|(found, _)| found), Some(id(1)));
    assert!(forget(1).await && !site.is_known(1));
    assert!(!forget(1).await);
    assert!(site.guard.find_by_reference(&id(1).reference()).await.expect("readable").is_none());
}

#[tokio::test]
async fn operation_keeps_name_of_former_build() {
    let site = new_test_guard("");
    site.complete_operation(1, KEEP).await.expect("done");
    let renamed = |number: u64, former: u64| {
        let mut wanted = request_of(number);
        wanted.operation.former = Some(id(former));
        wanted
    };
    assert!(matches!(find_operation(&site, renamed(11, 1)).await, Ok(JournalLookup::Done(_))));
    leave_unknown(&site, 2).await;
    {
        let Ok(JournalLookup::Unknown(reserved, _)) = find_operation(&site, renamed(12, 2)).await else {
            panic!("unknown")
        };
        assert_eq!(reserved.reference(), id(2).reference(), "the name that people were told");
        // Both names are reserved.
        for also in [request_of(2), request_of(12)] {
            assert_eq!(
                find_operation(&site, also).await.err(),
                Some(error::DispatchRefusedError::InProgress)
            );
        }
        reserved.reservation.resolve_not_done().await.expect("written");
    }
    assert!(!site.is_known(2));
    let Ok(JournalLookup::New(reserved)) = find_operation(&site, renamed(13, 3)).await else { panic!("new") };
    assert_eq!(reserved.reference(), id(13).reference());
}

/// An operation in flight may still run, however long ago it began.
#[tokio::test]
async fn in_flight_operation_may_still_run() {
    let site = new_test_guard("");
    let running = admitted(&site, 1).await;
    let entry = site.store.operation(&id(1)).expect("readable").expect("admitted");
    site.clock.advance(DAY);
    assert!(site.guard.may_still_run(&entry).await.expect("readable"));
    running.complete(stored_response(502, None)).await.expect("nothing to write");
    assert!(!site.guard.may_still_run(&entry).await.expect("readable"));
}
