//! Questions and answers are lost on their way.

use std::sync::Arc;

use fencegate_guard::{
    admission::DispatchEnd,
    error::AdmitError,
    postgres::{AdmitReply, PostgresError},
};
use fencegate_process::clock::ManualClock;
use fencegate_tests::{
    postgres::{LostMessage, PostgresProxy},
    shared_store::SharedStore,
};

use super::steps::{admit, barrier, barrier_in_time, claim, opened, runs};

#[tokio::test]
async fn an_admission_of_which_the_answer_is_lost_is_found_again_by_its_name() {
    for lost in [LostMessage::Answer, LostMessage::Question] {
        let store = SharedStore::new().await;
        let cut = PostgresProxy::start(store.database.address).await;
        let clock = Arc::new(ManualClock::default());
        let guard = opened(&store.at(&[cut.address]), &clock, "one").await;
        barrier(&guard).await;
        cut.cut_next("acct/7", lost);
        let asked = claim("acct/7", 20, 1);
        let (first, ()) = tokio::join!(runs(&guard, &asked), cut.wait_done());
        assert_eq!(store.run("SELECT count(*) FROM at_work"), "1", "{lost:?}: once");
        let again = admit(&guard, &asked).await;
        assert!(matches!(again, AdmitReply::Rejected(AdmitError::Duplicate { .. })), "{lost:?}: {again:?}");
        // The same for the answer to the end of the dispatch.
        cut.cut_next(&first.name.to_string(), lost);
        guard.end(&first, DispatchEnd::Known);
        let next = claim("acct/7", 21, 1);
        let (_, ()) = tokio::join!(async { barrier(&guard).await }, cut.wait_done());
        runs(&guard, &next).await;
    }
}

#[tokio::test]
async fn an_admission_that_nobody_waits_for_any_more_leaves_nothing_behind() {
    let store = SharedStore::new().await;
    let cut = PostgresProxy::start(store.database.address).await;
    let clock = Arc::new(ManualClock::default());
    let guard = opened(&store.at(&[cut.address]), &clock, "one").await;
    barrier(&guard).await;
    let given_up = claim("acct/7", 20, 1);
    cut.cut_next("acct/7", LostMessage::Answer);
    tokio::select! {
        look = guard.admit(&given_up, guard.new_name(), None) => panic!("{look:?}"),
        () = cut.wait_done() => {}
    }
    barrier(&guard).await;
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0", "its end was said by its name");
    // The database is away for longer than anybody waits.
    cut.close();
    let trouble =
        guard.admit(&claim("acct/7", 21, 1), guard.new_name(), None).await.expect_err("nobody is there");
    assert!(matches!(trouble, PostgresError::Unreachable(_) | PostgresError::Timeout), "{trouble:?}");
    cut.open();
    barrier_in_time(&guard).await;
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
    runs(&guard, &claim("acct/7", 22, 1)).await;
}

#[tokio::test]
async fn what_an_earlier_connection_still_asks_is_refused() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = opened(&store, &clock, "one").await;
    barrier(&guard).await;
    let late = r#"SELECT act(1, 0, 0, 1000, '{a}', '[{"kind": "claim", "id": "d", "keys": ["a"],
        "token": "v1-0000000000000020-00000000-00000001", "epoch": 32, "shared": false, "longest": 1, "again": false}]')"#;
    assert!(store.run(late).contains("\"acts\": 0"), "of an earlier generation");
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
    assert!(store.run(&late.replace("act(1, 0", "act(1, 1")).contains("running"), "of this one");
}
