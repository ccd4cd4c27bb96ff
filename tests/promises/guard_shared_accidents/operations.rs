//! The record of an operation is the same at every guard, is written once, and is forgotten when its time is over.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fencegate_guard_postgres::postgres::{
    InFlightDispatch, JournalWriteOutcome, OperationLockReply, PostgresAdmissionOutcome,
    PostgresOperationLock, PostgresStore,
};
use fencegate_guard_store::{
    admission::DispatchEnd,
    operation::{JournalEntryState, JournalUpdate, OperationJournalEntry, StoredResponse},
    store::JournalSize,
};
use fencegate_policies::operation::OperationId;
use fencegate_process::clock::ManualClock;
use fencegate_testkit::fault_proxy::{CutPoint, FaultProxy};
use fencegate_tests::shared_store::SharedStore;

use super::steps::{advance_time, claim, open_guard, wait_processed};

fn entry(key: &str, epoch: u64, state: JournalEntryState) -> OperationJournalEntry {
    let claim = claim(key, epoch, 1);
    OperationJournalEntry {
        format: 1,
        fingerprint: "f".into(),
        keys: claim.keys.to_vec(),
        token: claim.token,
        method: "POST".into(),
        target: "/pay".into(),
        name: Some("n".into()),
        askable: true,
        admitted: 7,
        began: Some(0),
        keep: 10,
        state,
    }
}

fn done_state(guard: &PostgresStore) -> JournalEntryState {
    let body = Some(Bytes::from_static(b"\0paid\xff"));
    let answer =
        Some(StoredResponse { status: 201, fields: vec![("content-type".into(), "x".into())], body });
    JournalEntryState::Done { at: guard.store_time(), answer }
}

async fn admit_operation(
    guard: &PostgresStore,
    id: OperationId,
    key: &str,
    epoch: u64,
) -> (PostgresOperationLock, InFlightDispatch) {
    let Ok(OperationLockReply::Acquired(held)) = guard.reserve(id).await else { panic!("nobody has it") };
    let entry = entry(key, epoch, JournalEntryState::Admitted);
    match guard.admit(&claim(key, epoch, 1), guard.new_dispatch_name(), Some((&held, &entry))).await {
        Ok(PostgresAdmissionOutcome::Running { dispatch, .. }) => (held, dispatch),
        other => panic!("{other:?}"),
    }
}

/// A guard reads the operations that another guard has recorded, until they are forgotten.
#[tokio::test]
async fn guards_share_operation_records() {
    let [first, second, third] = [1, 2, 3].map(|id| OperationId::from_bytes([id; 32]));
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    for (id, key, epoch) in [(first, "a", 20), (second, "b", 21)] {
        let (held, dispatch) = admit_operation(&one, id, key, epoch).await;
        let entry = entry(key, epoch, done_state(&one));
        let writing = JournalUpdate::Entry(Box::new(entry.clone()));
        assert_eq!(
            one.end_dispatch_with_outcome(&dispatch, DispatchEnd::Known, held, writing).await,
            Ok(JournalWriteOutcome::Durable)
        );
        assert_eq!(other.operation(&id).await, Ok(Some(entry.clone())), "with all of its body");
        assert_eq!(other.find_by_reference(&id.reference()).await, Ok(Some((id, entry))));
    }
    // The guard has released this operation without an outcome.
    let (held, dispatch) = admit_operation(&one, third, "c", 22).await;
    assert_eq!(
        (other.count_unknown(9).await, other.forget(&third).await),
        (Ok(0), Ok(false)),
        "it is in hand"
    );
    one.end_dispatch(&dispatch, DispatchEnd::Known);
    drop(held);
    wait_processed(&one).await;
    assert_eq!(other.count_unknown(9).await, Ok(1));
    let unfinished = other.unresolved_operations(9).await.expect("the database answers");
    assert_eq!(unfinished, [(third, entry("c", 22, JournalEntryState::Admitted))]);
    advance_time(&clock, &[&one, &other], Duration::from_secs(1)).await;
    let JournalSize { entries, bytes } = other.status().journal;
    assert!(entries == 3 && bytes > 300, "{entries} of {bytes}");
    assert_eq!(other.forget(&first).await, Ok(true));
    advance_time(&clock, &[&one, &other], Duration::from_secs(11)).await;
    assert_eq!(one.sweep(1000).await.expect("the database answers").operations, 1, "only what is finished");
    assert_eq!(one.operation(&second).await, Ok(None));
    let (held, dispatch) = admit_operation(&other, first, "a", 30).await;
    assert_eq!(
        other.end_dispatch_with_outcome(&dispatch, DispatchEnd::Known, held, JournalUpdate::Forget).await,
        Ok(JournalWriteOutcome::Durable)
    );
    advance_time(&clock, &[&one, &other], Duration::from_secs(1)).await;
    assert_eq!(one.status().journal.entries, 1);
}

/// The end of an operation is written once, also if the answer of the database is lost.
#[tokio::test]
async fn lost_answer_writes_outcome_once() {
    for lost in [CutPoint::Answer, CutPoint::Question] {
        let id = OperationId::from_bytes([1; 32]);
        let store = SharedStore::new().await;
        let proxy = FaultProxy::start(store.database.address);
        let clock = Arc::new(ManualClock::default());
        let guard = open_guard(&store.at_addresses(&[proxy.address]), &clock, "one").await;
        let (held, dispatch) = admit_operation(&guard, id, "a", 20).await;
        let entry = entry("a", 20, done_state(&guard));
        proxy.cut_next(&dispatch.name.to_string(), lost);
        let writing = JournalUpdate::Entry(Box::new(entry.clone()));
        let finishing = guard.end_dispatch_with_outcome(&dispatch, DispatchEnd::Known, held, writing);
        let (written, ()) = tokio::join!(finishing, proxy.wait_cut());
        assert_eq!(written, Ok(JournalWriteOutcome::Durable), "{lost:?}");
        assert_eq!(guard.operation(&id).await, Ok(Some(entry)));
        assert_eq!(store.run("SELECT count(*) FROM held"), "0");
        assert_eq!(store.run("SELECT sum(entries) FROM lane"), "1");
    }
}
