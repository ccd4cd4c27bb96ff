//! An upstream gets exactly one token, the one of the lock node that is held.
//!
//! The token consists of the czxid and the sequence number of that node. Unfenced requests get no token. Nodes are
//! removed after use.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    site::TestSite,
};

#[tokio::test]
async fn token_matches_held_lock_node() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let latch = site.origin.hold("/pay/7");

    let asked = gateway.begin(TestRequest::post("/pay/7"));
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    let locks = tree.locks().await;
    let [node] = locks.as_slice() else { panic!("one lock node: {locks:?}") };
    let czxid = tree.created_zxid(node).await;
    latch.release();
    let answer = asked.answer().await;

    let token = record.expect_token();
    assert_eq!(record.request.field("fencing-number"), Some(token.number().to_string().as_str()));
    assert_eq!(record.key(), Some("account/7"));
    assert_eq!(record.request.field("fencing-mode"), Some("exclusive"));
    assert_eq!((token.number(), token.dispatch()), (czxid, 1), "a fresh root has base 0");
    assert_eq!(answer.token(), Some(token));
    assert_eq!(answer.field("fencing-number"), Some(token.number().to_string().as_str()));
    assert_eq!(answer.outcome(), Some(FencingOutcome::Done));

    let parts: Vec<&str> = node.split('/').skip(2).collect();
    let [shard, key, name] = parts.as_slice() else { panic!("three levels below /locks: {node}") };
    assert_eq!((shard.len(), *key), (2, "account%2F7"));
    let (guid, sequence) = name.split_once("-w-").expect("<guid>-w-<sequence>");
    assert!(guid.len() == 32 && guid.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(sequence, format!("{:010}", token.sequence()));
}

#[tokio::test]
async fn finished_request_leaves_no_lock_node() {
    let site = TestSite::alone().await;
    let gateway = Gateway::start(&site.policy_without_janitor("gw-1")).await;
    let tree = site.tree().await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(answer.status, 200);
    tree.assert_no_locks().await;
    assert!(answer.completed.elapsed() < Duration::from_secs(1), "took {:?}", answer.completed.elapsed());
}

#[tokio::test]
async fn unfenced_request_gets_no_token() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let answer = gateway.send(&TestRequest::get("/pay/7")).await;
    assert_eq!((answer.status, answer.token()), (200, None));
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    let ours = record.request.fields.iter().filter(|(name, _)| name.to_lowercase().starts_with("fencing"));
    assert_eq!(ours.count(), 0, "{:?}", record.request);
}
