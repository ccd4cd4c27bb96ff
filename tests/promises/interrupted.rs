//! A connection to ZooKeeper that breaks is neither a lost lock nor an orphaned node, if it comes back in time.

use std::time::Duration;

use fencegate_tests::{
    client::{Ask, Outcome},
    gateway::Gateway,
    history::History,
    link::FaultyLink,
    load::{Load, Plan},
    patience::QUIET,
    policy::Policy,
    site::Site,
};
use serde_json::json;

async fn policy_through(site: &Site, link: &FaultyLink) -> Policy {
    site.unswept("gw-1").with("/zookeeper/servers", json!([link.address().to_string()]))
}

/// Nobody but the server knows that the node was made. It must be found again by its GUID and used, or it blocks the
/// key as long as the session lives.
#[tokio::test]
async fn a_lock_node_whose_creation_was_answered_to_nobody_is_found_and_used() {
    let site = Site::fresh().await;
    let link = FaultyLink::to(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &link).await;
    let gateway = site.pausing(&policy, "after_create_sent", Duration::from_millis(300)).await;
    let other = site.gateway("gw-2").await;
    assert_eq!(other.send(&Ask::post("/pay/7")).await.status, 200);
    tree.locks_become("none left", <[String]>::is_empty).await;
    let latch = site.origin.holds("/pay/7");

    let asked = gateway.begin(Ask::post("/pay/7"));
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
    assert_eq!((answer.status, answer.outcome()), (200, Some(Outcome::Done)));
    tree.locks_become("none left", <[String]>::is_empty).await;
}

#[tokio::test]
async fn a_lock_node_whose_removal_was_answered_to_nobody_is_gone() {
    let site = Site::fresh().await;
    let link = FaultyLink::to(site.zookeeper).await;
    let tree = site.tree().await;
    let gateway = Gateway::start(&policy_through(&site, &link).await).await;
    let latch = site.origin.holds("/pay/7");
    let asked = gateway.begin(Ask::post("/pay/7"));
    site.origin.request("/pay/7", 1).await;

    link.lose_replies();
    latch.let_go();
    assert_eq!(asked.answer().await.status, 200);
    tree.locks_become("none left", <[String]>::is_empty).await;
    link.cut();
    link.mend();
    gateway.becomes_ready().await;
    assert_eq!(gateway.send(&Ask::post("/pay/7")).await.status, 200);
    tree.locks_become("none left", <[String]>::is_empty).await;
}

/// The event that it waits for happens while it cannot hear of it.
#[tokio::test]
async fn a_waiter_that_was_cut_off_when_its_turn_came_is_served_when_it_is_back() {
    let site = Site::fresh().await;
    let link = FaultyLink::to(site.zookeeper).await;
    let tree = site.tree().await;
    let holder = site.gateway("gw-2").await;
    let gateway = Gateway::start(&policy_through(&site, &link).await).await;
    let latch = site.origin.holds("/pay/7");
    let first = holder.begin(Ask::post("/pay/7"));
    site.origin.request("/pay/7", 1).await;
    let second = gateway.begin(Ask::post("/pay/7"));
    tree.locks_become("a holder and a waiter", |locks| locks.len() == 2).await;

    link.cut();
    latch.let_go();
    assert_eq!(first.answer().await.status, 200);
    tree.locks_become("the waiter alone", |locks| locks.len() == 1).await;
    link.mend();
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(Outcome::Done)));
    History::of(&site.origin.log()).assert_holds();
    tree.locks_become("none left", <[String]>::is_empty).await;
}

#[tokio::test]
async fn a_connection_that_breaks_again_and_again_under_load_breaks_no_promise() {
    let site = Site::fresh().await;
    site.origin.works_for(Duration::from_millis(3));
    let link = FaultyLink::to(site.zookeeper).await;
    let tree = site.tree().await;
    let policy = policy_through(&site, &link).await.with("/zookeeper/session_timeout", "4s");
    let (one, two) = tokio::join!(Gateway::start(&policy), site.gateway("gw-2"));
    let plan = Plan {
        gateways: vec![one.public, two.public],
        paths: (0..3).map(|key| format!("/pay/{key}")).collect(),
        clients: 8,
        requests: 3000,
        pause: Duration::ZERO,
    };
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
    let told = load.stop().await;
    let history = History::of(&site.origin.log()).with(&told);
    history.assert_holds();
    assert!(history.hand_overs() >= 50, "not exercised: {} hand-overs", history.hand_overs());
    tree.locks_become("none left", <[String]>::is_empty).await;
    for told in &told {
        let status = told.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{told:?}");
    }
}
