//! Which operations are remembered, for how long and within which quota, and which unknown ones wait for an operator.
//!
//! Every process counts the unknown operations until an operator has decided, also one that was started later. A
//! clock that is ahead forgets nothing early. Routes and clients have shares of the quota.

use std::time::Duration;

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, PolicyFile, command},
    guarded::{GuardedSite, with_short_times},
    held_request::HeldRequest,
    origin::OriginAction,
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::{Value, json};

const UNKNOWN: &str = "fencegate_operations_unknown";

fn pay(name: &str) -> TestRequest {
    TestRequest::post("/pay/7").field("Idempotency-Key", name).body("ten")
}

fn with_once(policy: TestPolicy, once: Value) -> TestPolicy {
    policy.with("/routes/0/fence/once", once)
}

async fn resolve(policy: &TestPolicy, reference: &str) {
    let file = PolicyFile::new(&policy);
    let output =
        command(&["once", "resolve", reference, "--as", "done", "-c", &file]).await.expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn reference(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).expect("JSON");
    problem["operation_ref"].as_str().expect("a reference").to_owned()
}

/// Every gateway counts the unknown operations, also one that was started later, until an operator has decided.
#[tokio::test]
async fn gateways_count_unknown_operations() {
    let site = TestSite::fresh().await;
    let policy = |name| with_once(site.policy(name), json!({}));
    let a = policy("gw-1").with_cached_hold();
    let b = policy("gw-2");
    let (one, two) = Gateway::start_both(&a, &b).await;
    one.wait_series(UNKNOWN, &["store=\"zookeeper\""], 0.0).await;
    let broken = fencegate_tests::origin::OriginReply::ok().status(500);
    site.origin.script("/pay/7", [OriginAction::Reset, OriginAction::now(broken)]);
    assert_eq!(one.send(&pay("broken")).await.status, 502);
    one.wait_gauge(UNKNOWN, 1.0).await;
    // The gateway keeps the tenure of this operation, so no removed lock node shows that the operation has ended.
    assert_eq!(one.send(&pay("failed")).await.status, 500);
    one.wait_gauge(UNKNOWN, 2.0).await;
    two.wait_gauge(UNKNOWN, 2.0).await;

    let HeldRequest { request: running, latch, .. } = site.origin.hold_request(&one, pay("running")).await;
    let three = Gateway::start(&policy("gw-3")).await;
    three.wait_gauge(UNKNOWN, 2.0).await;
    one.signal(Signal::KILL);
    running.result().await.expect_err("killed");
    two.wait_gauge(UNKNOWN, 3.0).await;
    latch.release();
    for (name, left) in [("broken", 2.0), ("failed", 1.0), ("running", 0.0)] {
        let repeat = two.send(&pay(name)).await;
        assert_eq!(repeat.reason(), "outcome-unknown", "{repeat:?}");
        resolve(&b, &reference(&repeat.body)).await;
        two.wait_gauge(UNKNOWN, left).await;
        three.wait_gauge(UNKNOWN, left).await;
    }
}

/// A guard counts operations with an unknown outcome, also after it was killed, until an operator resolves them.
#[tokio::test]
async fn guard_counts_unknown_operations() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).start().await;
    let gateway = Gateway::start(&with_once(guarded.policy("gw-1", &[guard.public]), json!({}))).await;
    guard.wait_series(UNKNOWN, &["store=\"guard\""], 0.0).await;
    let origin = &guarded.site.origin;
    origin.script("/pay/7", [OriginAction::Reset]);
    assert_eq!(gateway.send(&pay("broken")).await.status, 502);
    guard.wait_gauge(UNKNOWN, 1.0).await;
    guard.wait_gauge("fencegate_guard_in_doubt", 0.0).await;
    guard.wait_gauge(UNKNOWN, 1.0).await;
    let HeldRequest { request: running, latch, .. } = origin.hold_request(&gateway, pay("running")).await;
    guard.wait_gauge(UNKNOWN, 1.0).await;
    let guard = guard.kill().await.start().await;
    latch.release();
    guard.wait_gauge(UNKNOWN, 2.0).await;
    drop(running.result().await);
    for (name, left) in [("broken", 1.0), ("running", 0.0)] {
        let repeat = gateway.send(&pay(name)).await;
        assert_eq!(
            (repeat.reason().as_str(), repeat.outcome()),
            ("outcome-unknown", Some(FencingOutcome::Unknown))
        );
        let path = format!("/api/v1/operations/{}/resolve", reference(&repeat.body));
        let done = TestRequest::post(&path).body(json!({"outcome": "done"}).to_string());
        assert_eq!(done.send_to(guard.admin).await.expect("answered").status, 200);
        guard.wait_gauge(UNKNOWN, left).await;
    }
}

/// Waits until the gateway has swept past the operation at `node` since now.
pub(crate) async fn wait_swept(tree: &ZnodeTree, node: &str, gateway: &Gateway) {
    let mut record: Value = serde_json::from_slice(&tree.data(node).await).expect("JSON");
    record["keep"] = json!(0);
    // Two operations beside the node have expired by every clock. The second one is forgotten by a sweep that has begun
    // after the first one was forgotten.
    for digits in ["beef", "cafe"] {
        let over = format!("{}{digits}", &node[..node.len() - 4]);
        tree.create(&over, b"{}").await;
        tree.set(&over, &serde_json::to_vec(&record).expect("JSON")).await;
        let forgotten = async {
            while tree.try_data(&over).await.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        wait_until("what is over to be forgotten", forgotten, || gateway.log()).await;
    }
}

/// An operation is not forgotten early by a gateway whose clock is fast: the clock of ZooKeeper decides.
#[tokio::test]
async fn fast_clock_forgets_nothing_early() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let gateway = Gateway::start(&with_once(site.policy("gw-1"), json!({}))).await;
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    let nodes = tree.paths().await;
    let node = nodes.iter().find(|path| path.starts_with("/ops/") && path.len() > 10).expect("one");
    let mut record: Value = serde_json::from_slice(&tree.data(node).await).expect("JSON");
    // The record now looks as it does to a gateway whose clock is two days ahead of the writer's clock.
    record["state"]["at"] = json!(record["state"]["at"].as_u64().expect("seconds") - 2 * 24 * 60 * 60);
    for _ in 0..3 {
        tree.set(node, &serde_json::to_vec(&record).expect("JSON")).await;
    }
    assert_eq!(tree.version(node).await % 3, 1, "that of what is finished");
    wait_swept(&tree, node, &gateway).await;
    assert_eq!(gateway.send(&pay("a")).await.reason(), "already-done");
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// A client that floods a route leaves quota for other clients, and is told which limit it has reached.
#[tokio::test]
async fn operation_quota_per_client_and_route() {
    let site = TestSite::fresh().await;
    let once = json!({"principal": "{header.x-shop}", "client_share": 3, "share": 5});
    let policy = with_once(site.policy("gw-1"), once).with_route(json!({
        "name": "refund", "upstream": "ledger", "match": {"methods": ["POST"], "path": "/refund/{account}"},
        "fence": {"key": "account/{path.account}", "once": {}},
    }));
    let gateway = Gateway::start(&policy).await;
    let of = |shop: &str, n: usize| pay(&format!("{shop}-{n}")).field("X-Shop", shop);
    for n in 0..3 {
        assert_eq!(gateway.send(&of("blue", n)).await.status, 200);
    }
    let refused = gateway.send(&of("blue", 3)).await;
    assert_eq!(
        (refused.status, refused.reason(), refused.outcome()),
        (429, "client-operations".into(), Some(FencingOutcome::NotDispatched))
    );
    assert_eq!(gateway.send(&of("blue", 0)).await.reason(), "already-done", "a repeat needs no room");
    for n in 0..2 {
        assert_eq!(gateway.send(&of("red", n)).await.status, 200);
    }
    let refused = gateway.send(&of("green", 0)).await;
    assert_eq!((refused.status, refused.reason()), (503, "route-operations".into()));
    let other = TestRequest::post("/refund/7").field("Idempotency-Key", "a");
    assert_eq!(gateway.send(&other).await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 5);

    // The other gateway counts the operations that this one has admitted.
    let two = Gateway::start(&policy.clone().with("/name", "gw-2")).await;
    let known = async {
        let mut n = 10;
        while two.send(&of("blue", n)).await.status == 200 {
            n += 1;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    wait_until("the other gateway to have counted", known, || two.log()).await;
    assert_eq!(two.send(&of("blue", 1000)).await.status, 429);
}
