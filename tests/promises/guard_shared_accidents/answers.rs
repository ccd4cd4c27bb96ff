//! A message to the database or its answer that is lost on the way admits no dispatch twice, and leaves none at work that
//! no caller waits for.

use std::sync::Arc;

use fencegate_guard_postgres::postgres::{PostgresAdmissionOutcome, PostgresError};
use fencegate_guard_store::{admission::DispatchEnd, error::DispatchRefusedError};
use fencegate_process::clock::ManualClock;
use fencegate_testkit::fault_proxy::{CutPoint, FaultProxy};
use fencegate_tests::shared_store::SharedStore;

use super::steps::{admit, admit_running, claim, open_guard, wait_processed, wait_processed_eventually};

/// An admission whose answer is lost is found again by its name, and is made once.
#[tokio::test]
async fn lost_admission_answer_is_recovered() {
    for lost in [CutPoint::Answer, CutPoint::Question] {
        let store = SharedStore::new().await;
        let proxy = FaultProxy::start(store.database.address);
        let clock = Arc::new(ManualClock::default());
        let guard = open_guard(&store.at_addresses(&[proxy.address]), &clock, "one").await;
        wait_processed(&guard).await;
        proxy.cut_next("acct/7", lost);
        let attempt = claim("acct/7", 20, 1);
        let (first, ()) = tokio::join!(admit_running(&guard, &attempt), proxy.wait_cut());
        assert_eq!(store.run("SELECT count(*) FROM at_work"), "1", "{lost:?}: once");
        let again = admit(&guard, &attempt).await;
        assert!(
            matches!(again, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Duplicate { .. })),
            "{lost:?}: {again:?}"
        );
        // The answer to the end of a dispatch may be lost as well: the end still opens the key.
        proxy.cut_next(&first.name.to_string(), lost);
        guard.end_dispatch(&first, DispatchEnd::Known);
        let next = claim("acct/7", 21, 1);
        let (_, ()) = tokio::join!(async { wait_processed(&guard).await }, proxy.wait_cut());
        admit_running(&guard, &next).await;
    }
}

/// An admission that no caller waits for any more leaves nothing at work.
#[tokio::test]
async fn abandoned_admission_leaves_nothing() {
    let store = SharedStore::new().await;
    let proxy = FaultProxy::start(store.database.address);
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store.at_addresses(&[proxy.address]), &clock, "one").await;
    wait_processed(&guard).await;
    let given_up = claim("acct/7", 20, 1);
    proxy.cut_next("acct/7", CutPoint::Answer);
    tokio::select! {
        reply = guard.admit(&given_up, guard.new_dispatch_name(), None) => panic!("{reply:?}"),
        () = proxy.wait_cut() => {}
    }
    wait_processed(&guard).await;
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0", "its end was said by its name");
    // The database is away for longer than a request waits.
    proxy.close();
    let trouble = guard
        .admit(&claim("acct/7", 21, 1), guard.new_dispatch_name(), None)
        .await
        .expect_err("nobody is there");
    assert!(matches!(trouble, PostgresError::Unreachable(_) | PostgresError::Timeout), "{trouble:?}");
    proxy.open();
    wait_processed_eventually(&guard).await;
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
    admit_running(&guard, &claim("acct/7", 22, 1)).await;
}

/// A statement of an earlier connection of a guard is refused.
#[tokio::test]
async fn earlier_connection_is_refused() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store, &clock, "one").await;
    wait_processed(&guard).await;
    let late = r#"SELECT act(1, 0, 0, 1000, '{a}', '[{"kind": "claim", "id": "d", "keys": ["a"],
        "token": "v1-0000000000000020-00000000-00000001", "epoch": 32, "shared": false, "longest": 1, "again": false}]')"#;
    assert!(store.run(late).contains("\"acts\": 0"), "of an earlier generation");
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
    assert!(store.run(&late.replace("act(1, 0", "act(1, 1")).contains("running"), "of this one");
}
