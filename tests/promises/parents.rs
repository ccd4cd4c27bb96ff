//! A key that no request wants any more leaves nothing in ZooKeeper, so the number of keys over time has no limit.
//!
//! The keys are used once, alone, in a set, or by many requests at once.

use std::time::Duration;

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{Http1Client, TestRequest},
    gateway::Gateway,
    load::{LoadPlan, RunningLoad},
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::{Value, json};

/// The parents of lock nodes, one for each key.
async fn parents(tree: &ZnodeTree) -> Vec<String> {
    let mut paths = tree.paths().await;
    paths.retain(|path| path.starts_with("/locks/") && path.matches('/').count() == 3);
    paths
}

/// Waits until no parent is left. The server itself would remove empty parents only after a minute or more.
async fn wait_nothing_left(tree: &ZnodeTree) {
    let gone = async {
        while !parents(tree).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the parents of all keys to go", gone, || "parents").await;
}

async fn assert_parents_removed(hold: Value) {
    const KEYS: usize = 300;
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/defaults/hold", hold);
    let tree = site.tree().await;
    let gateway = Gateway::start(&policy).await;
    let mut connection = Http1Client::connect(gateway.public).await.expect("listens");
    for key in 0..KEYS {
        let answer = connection.send(&TestRequest::post(&format!("/pay/{key}"))).await.expect("answered");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    wait_nothing_left(&tree).await;
}

#[tokio::test]
async fn single_use_keys_leave_no_nodes() {
    assert_parents_removed(json!({"mode": "strict"})).await;
    assert_parents_removed(json!({"mode": "cached", "linger": "60ms"})).await;
}

#[tokio::test]
async fn single_use_sets_leave_no_nodes() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with_route(json!({
        "name": "move", "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"]},
    }));
    let gateway = Gateway::start(&policy).await;
    let tree = site.tree().await;
    for key in 0..50 {
        assert_eq!(gateway.send(&TestRequest::post(&format!("/move/{key}/{}", key + 1))).await.status, 200);
    }
    wait_nothing_left(&tree).await;
}

/// Contended keys leave no node behind, and no request is refused.
///
/// The last gateway that leaves removes the parent, while others may be about to create a node below it.
#[tokio::test]
async fn contended_keys_leave_no_nodes() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let route = || {
        json!({
            "name": "move", "upstream": "ledger",
            "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
            "fence": {"keys": ["account/{path.from}", "account/{path.to}"]},
        })
    };
    let policy =
        |name| site.policy(name).with("/defaults/hold", json!({"mode": "strict"})).with_route(route());
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    let plan = LoadPlan {
        gateways: vec![one.public, two.public],
        paths: ["/pay/1", "/pay/2", "/move/1/2", "/move/2/1"].map(str::to_owned).into(),
        clients: 6,
        requests: 60,
        pause: Duration::from_millis(3),
    };
    let told = RunningLoad::start("fought", &plan).end().await;
    for told in &told {
        let answer = told.answer.as_ref().expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    wait_nothing_left(&tree).await;
}
