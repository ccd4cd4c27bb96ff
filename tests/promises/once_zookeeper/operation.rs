//! Requests for operations that ZooKeeper remembers, the responses to them, and the nodes in which they are stored.

use fencegate_policies::plan;
use fencegate_proxy::steps::key::name::operation_id;
use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::{Value, json};

pub(super) fn policy(site: &TestSite, name: &str) -> TestPolicy {
    with_once(site.policy(name))
}

pub(super) fn with_once(policy: TestPolicy) -> TestPolicy {
    policy.with("/routes/0/fence/once", json!({"store": "zookeeper"}))
}

pub(super) fn pay(name: &str) -> TestRequest {
    TestRequest::post("/pay/7").field("Idempotency-Key", name).body("{}")
}

pub(super) fn status_and_reason(answer: &ClientResponse) -> (u16, String) {
    (answer.status, answer.reason())
}

pub(super) fn already_done_refusal() -> (u16, String) {
    (409, "already-done".into())
}

pub(super) fn unknown_refusal() -> (u16, String) {
    (409, "outcome-unknown".into())
}

/// The operations that ZooKeeper remembers.
pub(super) async fn remembered_operations(tree: &ZnodeTree) -> Vec<Value> {
    let mut found = Vec::new();
    for path in tree.paths().await {
        let is_one = path.starts_with("/ops/") && path.matches('/').count() == 3;
        if is_one && let Some(data) = tree.try_data(&path).await {
            found.push(serde_json::from_slice(&data).expect("JSON"));
        }
    }
    found
}

/// The number of the node, of 256, below which an operation is stored.
pub(super) fn shard_of(name: &str) -> u8 {
    let named = plan::ClientOperationName { name: name.into(), principal: String::new() };
    operation_id("", &named).as_bytes()[0]
}

/// Names of two operations below the same node, which the first one creates.
pub(super) fn names_in_one_shard() -> [String; 2] {
    let first = "op-0".to_owned();
    let mut others = (1..).map(|n| format!("op-{n}")).filter(|other| shard_of(other) == shard_of(&first));
    let second = others.next().expect("one in 256");
    [first, second]
}
