//! A session that ends, at whatever step of a lock, leaves no lock node, and nothing more is sent under its tokens.

use fencegate_policies::token::FencingToken;
use fencegate_tests::{
    client::TestRequest,
    history::History,
    origin::Latch,
    zookeeper_proxy::{LockNodeOperation, OperationFault},
};

use super::link::{FaultyLinkGateways, HOLDS, assert_served};

/// A session that ends while a lock node is created costs no request and leaves no node.
#[tokio::test]
async fn request_survives_session_end_during_create() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let latch = Latch::default();
        let made = pair.link.intercept(LockNodeOperation::Create, OperationFault::AnswerHeld(latch.clone()));
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        made.wait().await;
        pair.end_session().await;
        pair.wait_nothing_left().await;
        // The request is released only when the gateway has a session again: without one it would be refused.
        pair.ours.wait_ready().await;
        latch.release();
        assert_served(asked).await;
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(None).await;
    }
}

/// A session that ends before its create arrives costs no request and leaves no node.
///
/// The create has not reached ZooKeeper, and its session is over when the connection is back.
#[tokio::test]
async fn request_survives_session_end_before_create() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let lost = pair.link.intercept(LockNodeOperation::Create, OperationFault::Vanishes);
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        lost.wait().await;
        pair.link.end_sessions();
        assert_served(asked).await;
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(None).await;
    }
}

/// A request whose session ends while it waits queues again, and no node is left.
#[tokio::test]
async fn waiter_requeues_after_session_end() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let (holder, waiter) = pair.queue_request().await;
        let before = pair.tree.locks().await;
        pair.link.end_sessions();
        let another = |locks: &[String]| locks.len() == 2 && locks != before;
        pair.tree.wait_locks("a holder and a waiter of another session", another).await;
        holder.release();
        assert_served(holder.request).await;
        assert_served(waiter).await;
        History::from_log(&pair.site.origin.log()).assert_holds();
        pair.assert_ours_serves(None).await;
    }
}

/// After a session that ended while it held a key, tokens are larger and no node is left.
///
/// The upstream may finish a request that it has received completely. Nothing more is sent under that token.
#[tokio::test]
async fn session_end_while_holding_raises_tokens() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let (asked, record, latch) = pair.hold_request().await;
        let queued = pair.ours.begin(TestRequest::post("/pay/7"));
        pair.ours.wait_gauge("fencegate_lock_waiters", 1.0).await;
        pair.end_session().await;
        latch.release();
        assert_served(asked).await;
        let answer = queued.answer().await;
        assert_eq!(answer.status, 200);
        assert!(
            answer.token().map(FencingToken::number) > Some(record.expect_token().number()),
            "{answer:?}"
        );
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(answer.token()).await;
    }
}

/// A session that ends while its lock node is deleted leaves no node.
#[tokio::test]
async fn session_end_during_delete_leaves_nothing() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let latch = Latch::default();
        let token = pair.remove_with_fault(OperationFault::AnswerHeld(latch.clone())).await;
        pair.link.end_sessions();
        latch.release();
        pair.wait_session_ended().await;
        pair.assert_ours_serves(token).await;
    }
}

/// A session that ends before its delete arrives leaves no node.
#[tokio::test]
async fn session_end_before_delete_leaves_nothing() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let token = pair.remove_with_fault(OperationFault::Vanishes).await;
        pair.end_session().await;
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(token).await;
    }
}
