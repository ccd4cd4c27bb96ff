//! A connection to ZooKeeper that breaks is neither a lost lock nor an orphaned node, if it comes back in time.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    faulty_link::ZooKeeperProxy,
    gateway::Gateway,
    history::History,
    load::{Load, LoadPlan},
    patience::QUIET,
    policy::TestPolicy,
    site::TestSite,
};

async fn policy_through(site: &TestSite, link: &ZooKeeperProxy) -> TestPolicy {
    site.unswept("gw-1").through(link.address())
}

/// Only the server knows that the node was made. The gateway has to find the node by its GUID and use it. Otherwise
/// the node blocks the key until the session ends.
#[tokio::test]
async fn a_lock_node_whose_creation_was_answered_to_nobody_is_found_and_used() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::to(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &link).await;
    let gateway = site.pausing(&policy, "after_create_sent", Duration::from_millis(300)).await;
    let other = site.gateway("gw-2").await;
    assert_eq!(other.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.no_lock_is_left().await;
    let latch = site.origin.holds("/pay/7");

    let asked = gateway.begin(TestRequest::post("/pay/7"));
    gateway.stands_at("after_create_sent").await;
    link.lose_replies();
    tree.locks_become("the node of the lost answer", |locks| locks.len() == 1).await;
    let made = tree.locks().await;
    link.cut();
    tokio::time::sleep(QUIET).await;
    link.mend();

    let record = site.origin.request("/pay/7", 2).await;
    assert_eq!(tree.locks().await, made, "another node was made beside it");
    assert_eq!(record.stamped().number(), tree.created(&made[0]).await);
    latch.let_go();
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    tree.no_lock_is_left().await;
}

#[tokio::test]
async fn a_lock_node_whose_removal_was_answered_to_nobody_is_gone() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::to(site.zookeeper).await;
    let tree = site.tree().await;
    let gateway = Gateway::start(&policy_through(&site, &link).await).await;
    let asked = site.origin.holds_one(&gateway, TestRequest::post("/pay/7")).await;

    link.lose_replies();
    assert_eq!(asked.finishes().await.status, 200);
    tree.no_lock_is_left().await;
    link.cut();
    link.mend();
    gateway.becomes_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.no_lock_is_left().await;
}

/// The waiter's event happens while the waiter is cut off.
#[tokio::test]
async fn a_waiter_that_was_cut_off_when_its_turn_came_is_served_when_it_is_back() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::to(site.zookeeper).await;
    let tree = site.tree().await;
    let holder = site.gateway("gw-2").await;
    let gateway = Gateway::start(&policy_through(&site, &link).await).await;
    let first = site.origin.holds_one(&holder, TestRequest::post("/pay/7")).await;
    let second = gateway.begin(TestRequest::post("/pay/7"));
    tree.so_many_wait(1).await;

    link.cut();
    assert_eq!(first.finishes().await.status, 200);
    tree.so_many_wait(0).await;
    link.mend();
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    History::of(&site.origin.log()).assert_holds();
    tree.no_lock_is_left().await;
}

#[tokio::test]
async fn a_connection_that_breaks_again_and_again_under_load_breaks_no_promise() {
    let site = TestSite::fresh().await;
    site.origin.works_for(Duration::from_millis(3));
    let link = ZooKeeperProxy::to(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &link).await.with("/zookeeper/session_timeout", "4s");
    let (one, two) = tokio::join!(Gateway::start(&policy), site.gateway("gw-2"));
    let plan = LoadPlan::paying(&[&one, &two], 3, 8, 3000);
    let load = Load::start("load", &plan);
    for round in 0..8 {
        let before = site.origin.log().records.len();
        site.origin.when("work in between", |log| log.records.get(before + 20).map(drop)).await;
        if round % 2 == 0 {
            link.lose_replies();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        link.cut();
        tokio::time::sleep(Duration::from_millis(50)).await;
        link.mend();
    }
    let told = load.keeps_its_promises(&site.origin, 50).await;
    tree.no_lock_is_left().await;
    for told in &told {
        let status = told.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{told:?}");
    }
}
