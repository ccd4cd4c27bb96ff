//! Whatever is lost between a gateway and ZooKeeper, at whatever step, no lock node is left and no place lost in vain.
//!
//! Each test here is an accident that leaves an orphan, or grants twice, with the lock that comes with the client
//! library. Sessions are so long that no janitor and no timeout can come to help while a test looks.

mod pair;

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    history::History,
    origin::Latch,
    wait::QUIET,
    zookeeper_proxy::{LockOperation, OperationFault, ZooKeeperProxy},
};
use serde_json::json;

pub(crate) use self::pair::{HOLDS, LinkedPair, is_served};

#[tokio::test]
async fn a_caller_that_goes_while_its_node_is_made_leaves_no_node() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let latch = Latch::default();
        let made = pair.link.intercept(LockOperation::Create, OperationFault::AnswerHeld(latch.clone()));
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        made.wait().await;
        assert_eq!(pair.tree.locks().await.len(), 1);
        asked.hang_up();
        pair.ours.wait_gauge("fencegate_lock_waiters", 0.0).await;
        latch.release();
        pair.nothing_is_left().await;
        assert!(pair.site.origin.log().records.iter().all(|record| record.gateway == "other"));
        pair.ours_serves(None).await;
    }
}

#[tokio::test]
async fn a_caller_that_goes_while_the_answer_to_its_create_is_lost_leaves_no_node() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let latch = Latch::default();
        let made = pair.link.intercept(LockOperation::Create, OperationFault::AnswerHeld(latch));
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        made.wait().await;
        asked.hang_up();
        pair.ours.wait_gauge("fencegate_lock_waiters", 0.0).await;
        pair.reconnect();
        pair.nothing_is_left().await;
        pair.ours_serves(None).await;
    }
}

#[tokio::test]
async fn a_create_that_never_arrived_is_made_again() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let lost = pair.link.intercept(LockOperation::Create, OperationFault::Vanishes);
        let asked = pair.ours.begin(TestRequest::post("/pay/7"));
        lost.wait().await;
        tokio::time::sleep(QUIET).await;
        assert_eq!(pair.tree.locks().await, [""; 0]);
        pair.reconnect();
        is_served(asked).await;
        pair.nothing_is_left().await;
        pair.key_is_free().await;
    }
}

/// The request does not wait until the client library notices the loss.
#[tokio::test]
async fn a_create_that_never_arrived_is_given_up_in_time() {
    for hold in HOLDS {
        let pair = LinkedPair::with(|policy| {
            policy.with("/defaults/hold", hold()).with("/routes/0/fence/wait", "1s")
        })
        .await;
        let lost = pair.link.intercept(LockOperation::Create, OperationFault::Vanishes);
        let answer = pair.ours.send(&TestRequest::post("/pay/7")).await;
        lost.wait().await;
        assert_eq!((answer.status, answer.reason().as_str()), (503, "lock-service"));
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(answer.took() < Duration::from_secs(4), "took {:?}", answer.took());
        pair.reconnect();
        pair.ours_serves(None).await;
    }
}

#[tokio::test]
async fn a_node_whose_creation_was_answered_to_nobody_is_adopted() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let made = pair.link.intercept(LockOperation::Create, OperationFault::AnswerLost);
        let (asked, record, latch) = pair.held().await;
        made.wait().await;
        let locks = pair.tree.locks().await;
        assert_eq!(locks.len(), 1, "another node was made beside it: {locks:?}");
        assert_eq!(record.expect_token().number(), pair.tree.created_zxid(&locks[0]).await);
        latch.release();
        is_served(asked).await;
        pair.ours_serves(Some(record.expect_token())).await;
    }
}

/// The first node of a key is made together with its parent.
#[tokio::test]
async fn a_first_node_whose_creation_was_answered_to_nobody_is_adopted() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let latch = pair.site.origin.hold("/pay/8");
        let made = pair.link.intercept(LockOperation::Multi, OperationFault::AnswerLost);
        let asked = pair.ours.begin(TestRequest::post("/pay/8"));
        let record = pair.site.origin.request("/pay/8", 1).await;
        made.wait().await;
        let locks = pair.tree.locks().await;
        assert_eq!(locks.len(), 1, "another node was made beside it: {locks:?}");
        assert_eq!(record.expect_token().number(), pair.tree.created_zxid(&locks[0]).await);
        latch.release();
        is_served(asked).await;
        pair.nothing_is_left().await;
    }
}

#[tokio::test]
async fn the_nodes_of_a_set_whose_creation_was_answered_to_nobody_are_adopted() {
    let route = json!({
        "name": "move",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"]},
    });
    let pair = LinkedPair::with(|policy| policy.with_route(route)).await;
    assert_eq!(pair.ours.send(&TestRequest::post("/move/6/7")).await.status, 200);
    let latch = pair.site.origin.hold("/move/7/6");
    let made = pair.link.intercept(LockOperation::Multi, OperationFault::AnswerLost);
    let asked = pair.ours.begin(TestRequest::post("/move/7/6"));
    let record = pair.site.origin.request("/move/7/6", 1).await;
    made.wait().await;
    let locks = pair.tree.locks().await;
    assert_eq!(locks.len(), 2, "{locks:?}");
    for lock in &locks {
        assert_eq!(record.expect_token().number(), pair.tree.created_zxid(lock).await);
    }
    latch.release();
    is_served(asked).await;
    pair.nothing_is_left().await;
    pair.key_is_free().await;
}

/// Removing the old node and standing in line again is one transaction, and its answer is lost.
#[tokio::test]
async fn a_yield_that_was_answered_to_nobody_leaves_one_node_and_keeps_the_place() {
    let hold = json!({"mode": "cached", "linger": "60s", "max_hold": "50ms"});
    let pair = LinkedPair::new(hold).await;
    let (first, record, latch) = pair.held().await;
    let other = pair.other.begin(TestRequest::post("/pay/7"));
    pair.tree.wait_waiters(1).await;
    tokio::time::sleep(QUIET).await;
    let second = pair.ours.begin(TestRequest::post("/pay/7"));
    pair.ours.wait_gauge("fencegate_lock_waiters", 1.0).await;
    let yielded = pair.link.intercept(LockOperation::Multi, OperationFault::AnswerLost);
    latch.release();
    is_served(first).await;
    yielded.wait().await;
    is_served(other).await;
    is_served(second).await;
    let log = pair.site.origin.log();
    let order: Vec<_> = log.on("/pay/7").skip(1).map(|record| record.gateway.clone()).collect();
    assert_eq!(order, ["ours", "other", "ours"]);
    drop(log);
    let history = History::from_log(&pair.site.origin.log());
    history.assert_holds();
    let one = |locks: &[String]| locks.len() == 1;
    pair.tree.wait_locks("the node that is kept", one).await;
    assert!(pair.ours.send(&TestRequest::post("/pay/7")).await.token() > Some(record.expect_token()));
    assert_eq!(pair.other.send(&TestRequest::post("/pay/7")).await.status, 200);
}

#[tokio::test]
async fn a_node_whose_removal_was_answered_to_nobody_is_gone() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let token = pair.removed(OperationFault::AnswerLost).await;
        pair.nothing_is_left().await;
        pair.ours_serves(token).await;
    }
}

#[tokio::test]
async fn a_removal_that_never_arrived_is_made_again() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let token = pair.removed(OperationFault::Vanishes).await;
        assert_eq!(pair.tree.locks().await.len(), 1, "not exercised");
        pair.reconnect();
        pair.nothing_is_left().await;
        pair.ours_serves(token).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_given_back_while_disconnected_is_gone_after_the_reconnect() {
    for hold in HOLDS {
        for breaks in [ZooKeeperProxy::cut, ZooKeeperProxy::reset] {
            let pair = LinkedPair::new(hold()).await;
            let (asked, record, latch) = pair.held().await;
            breaks(&pair.link);
            latch.release();
            is_served(asked).await;
            tokio::time::sleep(QUIET).await;
            assert_eq!(pair.tree.locks().await.len(), 1, "not exercised");
            pair.link.mend();
            pair.nothing_is_left().await;
            pair.ours_serves(Some(record.expect_token())).await;
        }
    }
}

#[tokio::test]
async fn a_waiter_that_goes_while_disconnected_leaves_no_node() {
    for hold in HOLDS {
        let pair = LinkedPair::new(hold()).await;
        let (holder, waiter) = pair.waits().await;
        pair.link.cut();
        waiter.hang_up();
        pair.ours.wait_gauge("fencegate_lock_waiters", 0.0).await;
        tokio::time::sleep(QUIET).await;
        pair.link.mend();
        pair.tree.wait_waiters(0).await;
        holder.release();
        is_served(holder.request).await;
        pair.ours_serves(None).await;
    }
}

/// The watch that was set before the cut and the event that came during it both have to survive.
#[tokio::test]
async fn a_waiter_is_served_whether_its_turn_comes_during_or_after_a_reconnect() {
    for hold in HOLDS {
        for turn_comes_first in [true, false] {
            let pair = LinkedPair::new(hold()).await;
            let (holder, waiter) = pair.waits().await;
            pair.link.cut();
            if turn_comes_first {
                holder.release();
                pair.tree.wait_waiters(0).await;
            }
            pair.ours.wait_unready().await;
            pair.link.mend();
            pair.ours.wait_ready().await;
            holder.release();
            is_served(holder.request).await;
            is_served(waiter).await;
            History::from_log(&pair.site.origin.log()).assert_holds();
            pair.nothing_is_left().await;
        }
    }
}

/// The watch for contention was set before the connection broke, or its event came while the gateway was away.
#[tokio::test]
async fn a_kept_key_is_given_up_whether_it_is_wanted_during_or_after_a_reconnect() {
    for wanted_meanwhile in [true, false] {
        let pair = LinkedPair::new(json!({"mode": "cached", "linger": "60s"})).await;
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
        is_served(asked).await;
        pair.nothing_is_left().await;
        History::from_log(&pair.site.origin.log()).assert_holds();
    }
}
