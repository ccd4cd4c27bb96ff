//! A connection to ZooKeeper that breaks loses no lock and leaves no orphaned lock node, if it comes back before the
//! session ends.
//!
//! The connection breaks with and without lost replies.

use std::time::Duration;

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    history::History,
    load::{LoadPlan, RunningLoad},
    policy::TestPolicy,
    site::TestSite,
    zookeeper_proxy::ZooKeeperProxy,
};

async fn policy_through(site: &TestSite, proxy: &ZooKeeperProxy) -> TestPolicy {
    site.policy_without_janitor("gw-1").with_zookeeper(proxy.address())
}

/// A lock node whose creation was answered by a lost reply is found by its GUID and used. Only the server has a record
/// of this node, which would otherwise block the key until the session ends.
#[tokio::test]
async fn lost_create_reply_reuses_node() {
    let site = TestSite::fresh().await;
    let proxy = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &proxy).await;
    let gateway = site.gateway_paused_at(&policy, "after_create_sent", Duration::from_millis(300)).await;
    let other = site.gateway("gw-2").await;
    assert_eq!(other.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;
    let latch = site.origin.hold("/pay/7");

    let pending = gateway.begin(TestRequest::post("/pay/7"));
    gateway.wait_at_failpoint("after_create_sent").await;
    proxy.lose_replies();
    tree.wait_locks("the node of the lost answer", |locks| locks.len() == 1).await;
    let made = tree.locks().await;
    proxy.cut();
    tokio::time::sleep(QUIET).await;
    proxy.mend();

    let record = site.origin.wait_for_request("/pay/7", 2).await;
    assert_eq!(tree.locks().await, made, "another node was made beside it");
    assert_eq!(record.expect_token().number(), tree.created_zxid(&made[0]).await);
    latch.release();
    let answer = pending.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    tree.assert_no_locks().await;
}

/// A lock node whose removal was answered by a lost reply is gone.
#[tokio::test]
async fn lost_delete_reply_leaves_no_node() {
    let site = TestSite::fresh().await;
    let proxy = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let gateway = Gateway::start(&policy_through(&site, &proxy).await).await;
    let held = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;

    proxy.lose_replies();
    assert_eq!(held.finish().await.status, 200);
    tree.assert_no_locks().await;
    proxy.cut();
    proxy.mend();
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;
}

/// A waiter whose turn comes while it is disconnected misses the event, and is served when its connection is back.
#[tokio::test]
async fn waiter_is_served_after_reconnect() {
    let site = TestSite::fresh().await;
    let proxy = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let holder = site.gateway("gw-2").await;
    let gateway = Gateway::start(&policy_through(&site, &proxy).await).await;
    let first = site.origin.hold_request(&holder, TestRequest::post("/pay/7")).await;
    let second = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;

    proxy.cut();
    assert_eq!(first.finish().await.status, 200);
    tree.wait_waiters(0).await;
    proxy.mend();
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    History::from_log(&site.origin.log()).assert_holds();
    tree.assert_no_locks().await;
}

/// A ZooKeeper connection that breaks again and again under load lets no two executions of a key overlap.
#[tokio::test]
async fn repeated_disconnects_keep_exclusion() {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(3));
    let proxy = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &proxy).await.with("/zookeeper/session_timeout", "4s");
    let (one, two) = tokio::join!(Gateway::start(&policy), site.gateway("gw-2"));
    let plan = LoadPlan::payments(&[&one, &two], 3, 8, 3000);
    let load = RunningLoad::start("load", &plan);
    for round in 0..8 {
        let before = site.origin.log().records.len();
        site.origin.wait_for("work in between", |log| log.records.get(before + 20).map(drop)).await;
        if round % 2 == 0 {
            proxy.lose_replies();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        proxy.cut();
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.mend();
    }
    let results = load.assert_promises(&site.origin, 50).await;
    tree.assert_no_locks().await;
    for result in &results {
        let status = result.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{result:?}");
    }
}
