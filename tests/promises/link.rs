//! Whatever is lost between a gateway and ZooKeeper, at whatever step, no lock node is left behind and no request
//! loses its queue position for nothing.
//!
//! Each test here is a fault that leaves an orphan, or grants twice, with the lock that comes with the client library.
//! Sessions are so long that no janitor and no timeout can come to help while a test looks.
//!
//! The keys are strict and cached.

mod pair;

use std::time::Duration;

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    history::History,
    origin::Latch,
    zookeeper_proxy::{LockNodeOperation, OperationFault, ZooKeeperProxy},
};
use serde_json::json;

pub(crate) use self::pair::{FaultyLinkGateways, HOLDS, assert_served};

/// A caller that hangs up while its lock node is created leaves no node.
#[tokio::test]
async fn aborted_create_leaves_no_node() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let latch = Latch::default();
        let made = pair.link.intercept(LockNodeOperation::Create, OperationFault::AnswerHeld(latch.clone()));
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        made.wait().await;
        assert_eq!(pair.tree.locks().await.len(), 1);
        asked.hang_up();
        pair.ours.wait_gauge("fencegate_lock_waiters", 0.0).await;
        latch.release();
        pair.wait_nothing_left().await;
        assert!(pair.site.origin.log().records.iter().all(|record| record.gateway == "other"));
        pair.assert_ours_serves(None).await;
    }
}

/// A caller that hangs up while the response to its create is lost leaves no node after the reconnect.
#[tokio::test]
async fn aborted_unanswered_create_leaves_no_node() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let latch = Latch::default();
        let made = pair.link.intercept(LockNodeOperation::Create, OperationFault::AnswerHeld(latch));
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        made.wait().await;
        asked.hang_up();
        pair.ours.wait_gauge("fencegate_lock_waiters", 0.0).await;
        pair.reconnect();
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(None).await;
    }
}

/// A create that never reached ZooKeeper is sent again after the reconnect.
#[tokio::test]
async fn lost_create_is_retried() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let lost = pair.link.intercept(LockNodeOperation::Create, OperationFault::Vanishes);
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        lost.wait().await;
        tokio::time::sleep(QUIET).await;
        assert_eq!(pair.tree.locks().await, [""; 0]);
        pair.reconnect();
        assert_served(asked).await;
        pair.wait_nothing_left().await;
        pair.assert_key_free().await;
    }
}

/// A create that never reached ZooKeeper ends its request in time as `not-dispatched`.
///
/// The request does not wait until the client library notices that the create is lost.
#[tokio::test]
async fn lost_create_times_out() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::with_policy(|policy| {
            policy.with("/defaults/hold", hold()).with("/routes/0/fence/wait", "1s")
        })
        .await;
        let lost = pair.link.intercept(LockNodeOperation::Create, OperationFault::Vanishes);
        let answer = pair.ours.send(&TestRequest::post("/pay/7")).await;
        lost.wait().await;
        assert_eq!((answer.status, answer.reason().as_str()), (503, "lock-service"));
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(answer.took() < Duration::from_secs(4), "took {:?}", answer.took());
        pair.reconnect();
        pair.assert_ours_serves(None).await;
    }
}

/// A lock node whose create response was lost is adopted, and no second node is created.
#[tokio::test]
async fn unanswered_create_is_adopted() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let made = pair.link.intercept(LockNodeOperation::Create, OperationFault::AnswerLost);
        let (asked, record, latch) = pair.hold_request().await;
        made.wait().await;
        let locks = pair.tree.locks().await;
        assert_eq!(locks.len(), 1, "another node was made beside it: {locks:?}");
        assert_eq!(record.expect_token().number(), pair.tree.created_zxid(&locks[0]).await);
        latch.release();
        assert_served(asked).await;
        pair.assert_ours_serves(Some(record.expect_token())).await;
    }
}

/// A first lock node whose create response was lost is adopted.
///
/// The first node of a key is created in one transaction with its parent.
#[tokio::test]
async fn unanswered_first_create_is_adopted() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let latch = pair.site.origin.hold("/pay/8");
        let made = pair.link.intercept(LockNodeOperation::Multi, OperationFault::AnswerLost);
        let asked = pair.ours.begin(TestRequest::post("/pay/8"));
        let record = pair.site.origin.wait_for_request("/pay/8", 1).await;
        made.wait().await;
        let locks = pair.tree.locks().await;
        assert_eq!(locks.len(), 1, "another node was made beside it: {locks:?}");
        assert_eq!(record.expect_token().number(), pair.tree.created_zxid(&locks[0]).await);
        latch.release();
        assert_served(asked).await;
        pair.wait_nothing_left().await;
    }
}

/// The lock nodes of a set whose create response was lost are adopted.
#[tokio::test]
async fn unanswered_set_create_is_adopted() {
    let route = json!({
        "name": "move",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"]},
    });
    let pair = FaultyLinkGateways::with_policy(|policy| policy.with_route(route)).await;
    assert_eq!(pair.ours.send(&TestRequest::post("/move/6/7")).await.status, 200);
    let latch = pair.site.origin.hold("/move/7/6");
    let made = pair.link.intercept(LockNodeOperation::Multi, OperationFault::AnswerLost);
    let asked = pair.ours.begin(TestRequest::post("/move/7/6"));
    let record = pair.site.origin.wait_for_request("/move/7/6", 1).await;
    made.wait().await;
    let locks = pair.tree.locks().await;
    assert_eq!(locks.len(), 2, "{locks:?}");
    for lock in &locks {
        assert_eq!(record.expect_token().number(), pair.tree.created_zxid(lock).await);
    }
    latch.release();
    assert_served(asked).await;
    pair.wait_nothing_left().await;
    pair.assert_key_free().await;
}

/// A yield whose response was lost leaves one node, and the key keeps its queue position.
///
/// A yield removes the old node and creates a new one at the end of the queue, in one transaction.
#[tokio::test]
async fn unanswered_yield_keeps_one_queued_node() {
    let hold = json!({"mode": "cached", "linger": "60s", "max_hold": "50ms"});
    let pair = FaultyLinkGateways::new(hold).await;
    let (first, record, latch) = pair.hold_request().await;
    let other = pair.other.begin(TestRequest::post("/pay/7"));
    pair.tree.wait_waiters(1).await;
    tokio::time::sleep(QUIET).await;
    let second = pair.ours.begin(TestRequest::post("/pay/7"));
    pair.ours.wait_gauge("fencegate_lock_waiters", 1.0).await;
    let yielded = pair.link.intercept(LockNodeOperation::Multi, OperationFault::AnswerLost);
    latch.release();
    assert_served(first).await;
    yielded.wait().await;
    assert_served(other).await;
    assert_served(second).await;
    let log = pair.site.origin.log();
    let order: Vec<_> = log.requests_for("/pay/7").skip(1).map(|record| record.gateway.clone()).collect();
    assert_eq!(order, ["ours", "other", "ours"]);
    drop(log);
    let history = History::from_log(&pair.site.origin.log());
    history.assert_holds();
    let one = |locks: &[String]| locks.len() == 1;
    pair.tree.wait_locks("the node that is kept", one).await;
    assert!(pair.ours.send(&TestRequest::post("/pay/7")).await.token() > Some(record.expect_token()));
    assert_eq!(pair.other.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// A lock node whose delete response was lost is gone, and the next token is larger.
#[tokio::test]
async fn unanswered_delete_leaves_no_node() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let token = pair.remove_with_fault(OperationFault::AnswerLost).await;
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(token).await;
    }
}

/// A delete that never reached ZooKeeper is sent again after the reconnect.
#[tokio::test]
async fn lost_delete_is_retried() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let token = pair.remove_with_fault(OperationFault::Vanishes).await;
        assert_eq!(pair.tree.locks().await.len(), 1, "not exercised");
        pair.reconnect();
        pair.wait_nothing_left().await;
        pair.assert_ours_serves(token).await;
    }
}

/// A lock that is released while the gateway is disconnected is gone after the reconnect.
#[tokio::test]
async fn release_while_disconnected_completes_after_reconnect() {
    for hold in HOLDS {
        for breaks in [ZooKeeperProxy::cut, ZooKeeperProxy::reset] {
            let pair = FaultyLinkGateways::new(hold()).await;
            let (asked, record, latch) = pair.hold_request().await;
            breaks(&pair.link);
            latch.release();
            assert_served(asked).await;
            tokio::time::sleep(QUIET).await;
            assert_eq!(pair.tree.locks().await.len(), 1, "not exercised");
            pair.link.mend();
            pair.wait_nothing_left().await;
            pair.assert_ours_serves(Some(record.expect_token())).await;
        }
    }
}

/// A waiter that hangs up while its gateway is disconnected leaves no node after the reconnect.
#[tokio::test]
async fn abort_while_disconnected_leaves_no_node() {
    for hold in HOLDS {
        let pair = FaultyLinkGateways::new(hold()).await;
        let (holder, waiter) = pair.queue_request().await;
        pair.link.cut();
        waiter.hang_up();
        pair.ours.wait_gauge("fencegate_lock_waiters", 0.0).await;
        tokio::time::sleep(QUIET).await;
        pair.link.mend();
        pair.tree.wait_waiters(0).await;
        holder.release();
        assert_served(holder.request).await;
        pair.assert_ours_serves(None).await;
    }
}

/// A waiter is granted whether its turn comes during or after a reconnect.
///
/// The watch from before the cut has to survive, and so has the event that came during the cut.
#[tokio::test]
async fn waiter_is_granted_across_reconnect() {
    for hold in HOLDS {
        for turn_comes_first in [true, false] {
            let pair = FaultyLinkGateways::new(hold()).await;
            let (holder, waiter) = pair.queue_request().await;
            pair.link.cut();
            if turn_comes_first {
                holder.release();
                pair.tree.wait_waiters(0).await;
            }
            pair.ours.wait_unready().await;
            pair.link.mend();
            pair.ours.wait_ready().await;
            holder.release();
            assert_served(holder.request).await;
            assert_served(waiter).await;
            History::from_log(&pair.site.origin.log()).assert_holds();
            pair.wait_nothing_left().await;
        }
    }
}

/// A cached key is yielded whether a peer queues for it during or after a reconnect.
///
/// The watch for waiting peers was set before the connection broke, or its event came while the gateway was
/// disconnected.
#[tokio::test]
async fn cached_key_is_yielded_across_reconnect() {
    for wanted_meanwhile in [true, false] {
        let pair = FaultyLinkGateways::new(json!({"mode": "cached", "linger": "60s"})).await;
        assert_eq!(pair.ours.send(&TestRequest::post("/pay/7")).await.status, 200);
        pair.link.cut();
        pair.ours.wait_unready().await;
        let mut asked = wanted_meanwhile.then(|| pair.other.begin(TestRequest::post("/pay/7")));
        if wanted_meanwhile {
            pair.tree.wait_waiters(1).await;
        }
        pair.link.mend();
        pair.ours.wait_ready().await;
        let asked = asked.take().unwrap_or_else(|| pair.other.begin(TestRequest::post("/pay/7")));
        assert_served(asked).await;
        pair.wait_nothing_left().await;
        History::from_log(&pair.site.origin.log()).assert_holds();
    }
}
