//! A connection to ZooKeeper that breaks is neither a lost lock nor an orphaned node, if it comes back in time.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    history::History,
    load::{Load, LoadPlan},
    policy::TestPolicy,
    site::TestSite,
    wait::QUIET,
    zookeeper_proxy::ZooKeeperProxy,
};

async fn policy_through(site: &TestSite, link: &ZooKeeperProxy) -> TestPolicy {
    site.policy_without_janitor("gw-1").with_zookeeper(link.address())
}

/// Only the server knows that the node was made. The gateway has to find the node by its GUID and use it. Otherwise
/// the node blocks the key until the session ends.
#[tokio::test]
async fn a_lock_node_whose_creation_was_answered_to_nobody_is_found_and_used() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &link).await;
    let gateway = site.gateway_paused_at(&policy, "after_create_sent", Duration::from_millis(300)).await;
    let other = site.gateway("gw-2").await;
    assert_eq!(other.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;
    let latch = site.origin.hold("/pay/7");

    let asked = gateway.begin(TestRequest::post("/pay/7"));
    gateway.wait_at_failpoint("after_create_sent").await;
    link.lose_replies();
    tree.wait_locks("the node of the lost answer", |locks| locks.len() == 1).await;
    let made = tree.locks().await;
    link.cut();
    tokio::time::sleep(QUIET).await;
    link.mend();

    let record = site.origin.request("/pay/7", 2).await;
    assert_eq!(tree.locks().await, made, "another node was made beside it");
    assert_eq!(record.expect_token().number(), tree.created_zxid(&made[0]).await);
    latch.release();
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    tree.assert_no_locks().await;
}

#[tokio::test]
async fn a_lock_node_whose_removal_was_answered_to_nobody_is_gone() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let gateway = Gateway::start(&policy_through(&site, &link).await).await;
    let asked = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;

    link.lose_replies();
    assert_eq!(asked.finish().await.status, 200);
    tree.assert_no_locks().await;
    link.cut();
    link.mend();
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;
}

/// The waiter's event happens while the waiter is cut off.
#[tokio::test]
async fn a_waiter_that_was_cut_off_when_its_turn_came_is_served_when_it_is_back() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let holder = site.gateway("gw-2").await;
    let gateway = Gateway::start(&policy_through(&site, &link).await).await;
    let first = site.origin.hold_request(&holder, TestRequest::post("/pay/7")).await;
    let second = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;

    link.cut();
    assert_eq!(first.finish().await.status, 200);
    tree.wait_waiters(0).await;
    link.mend();
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    History::from_log(&site.origin.log()).assert_holds();
    tree.assert_no_locks().await;
}

#[tokio::test]
async fn a_connection_that_breaks_again_and_again_under_load_breaks_no_promise() {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(3));
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &link).await.with("/zookeeper/session_timeout", "4s");
    let (one, two) = tokio::join!(Gateway::start(&policy), site.gateway("gw-2"));
    let plan = LoadPlan::payments(&[&one, &two], 3, 8, 3000);
    let load = Load::start("load", &plan);
    for round in 0..8 {
        let before = site.origin.log().records.len();
        site.origin.wait_for("work in between", |log| log.records.get(before + 20).map(drop)).await;
        if round % 2 == 0 {
            link.lose_replies();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        link.cut();
        tokio::time::sleep(Duration::from_millis(50)).await;
        link.mend();
    }
    let told = load.assert_promises(&site.origin, 50).await;
    tree.assert_no_locks().await;
    for told in &told {
        let status = told.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{told:?}");
    }
}
