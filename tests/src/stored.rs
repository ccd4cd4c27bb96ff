//! Data that one version stores and another version reads: functions that write the data, and functions that check
//! that the reader still has it.

use std::path::Path;

use fencegate_testkit::child::Signal;
use serde_json::{Value, json};

use crate::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    guard::{self, FLOOR, Guard, GuardFixture, StampedRequest},
    guarded::with_short_times,
    held_request::HeldRequest,
    origin::{Origin, OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};

/// The body of the answer to the operation that is done.
const KEPT: &[u8] = b"{\"id\": 7}";

/// Writes the store of a guard of one version: a watermark, an operation that is done, and one with an unknown
/// outcome, because the guard is killed during it.
///
/// # Panics
/// If the guard of this version behaves otherwise.
pub async fn write_guard_store(beside: &GuardFixture, version: &Path) -> guard::GuardLaunch {
    let launch =
        with_short_times(beside.uninitialized_launch().with_binary(version).init_with_floor(FLOOR).await);
    let guard = launch.start().await;
    guard.wait_ready().await;
    assert_eq!(guard.send(&StampedRequest::new("used", 20).post("/used")).await.status, 200);
    beside.origin.script("/done", [OriginAction::now(OriginReply::with_body(KEPT).status(201))]);
    assert_eq!(guard.send(&StampedRequest::new("done", 20).once(1).post("/done")).await.status, 201);
    let lost = StampedRequest::new("lost", 20).once(2).post("/lost");
    let HeldRequest { request, latch, .. } = beside.origin.hold_request(&guard, lost).await;
    let launch = guard.kill().await;
    request.result().await.expect_err("nobody is left to answer");
    latch.release();
    launch
}

/// Checks that a guard has the data of [`write_guard_store`].
///
/// # Panics
/// If the guard has lost some of the data.
pub async fn assert_guard_store(guard: &Guard, origin: &Origin) {
    guard.wait_ready().await;
    let before = origin.count("/done") + origin.count("/lost");
    let late = guard.send(&StampedRequest::new("used", 15).post("/used")).await;
    assert_eq!(status_and_reason(&late), (412, "stale".into()));
    assert_eq!(guard.send(&StampedRequest::new("used", 30).post("/used")).await.status, 200);
    let done = guard.send(&StampedRequest::new("done", 30).once(1).post("/done")).await;
    assert_eq!((done.status, done.outcome()), (201, Some(FencingOutcome::Replayed)), "{done:?}");
    assert_eq!(done.body, KEPT);
    let lost = guard.send(&StampedRequest::new("lost", 30).once(2).post("/lost")).await;
    assert_eq!(status_and_reason(&lost), (409, "outcome-unknown".into()));
    assert_eq!(origin.count("/done") + origin.count("/lost"), before, "it was done again");
}

/// The policy of a gateway that remembers its operations in ZooKeeper.
pub fn policy_with_operations(site: &TestSite, name: &str) -> TestPolicy {
    site.policy(name).with("/routes/0/fence/once", json!({"store": "zookeeper"}))
}

/// The policy of a gateway that waits until the requests of a lost holder must have ended.
pub fn policy_with_delay(site: &TestSite, name: &str) -> TestPolicy {
    site.policy(name)
        .with("/upstreams/ledger/fencing", "delay")
        .with("/upstreams/ledger/delay", "60s")
        .with("/upstreams/ledger/response_timeout", "10s")
        .with("/routes/0/fence/wait", "1s")
}

fn pay(account: u8, operation: &str) -> TestRequest {
    TestRequest::post(&format!("/pay/{account}")).field("Idempotency-Key", operation).body("{}")
}

/// Writes the state of gateways of one version. ZooKeeper then has an operation that is done, one with an unknown
/// outcome, and a delay that has not elapsed, because two gateways are killed during a request. The folder `state`
/// has the largest token. Returns the persistent nodes.
///
/// # Panics
/// If the gateways of this version behave otherwise.
pub async fn write_gateway_state(site: &TestSite, version: &Path, state: &Path) -> Vec<Value> {
    let policy = site.policy("gw-0").with("/state_dir", state.display().to_string());
    let gateway = GatewayLaunch::new(&policy).with_binary(version).start().await;
    gateway.wait_ready().await;
    // A new ZooKeeper does not reach a token this large in the time of a test.
    for _ in 0..200 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/1")).await.status, 200);
    }
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    let gateway =
        GatewayLaunch::new(&policy_with_operations(site, "gw-1")).with_binary(version).start().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&pay(7, "done")).await.status, 200);
    kill_in_flight(site, &gateway, pay(8, "lost")).await;
    let gateway = GatewayLaunch::new(&policy_with_delay(site, "gw-2")).with_binary(version).start().await;
    gateway.wait_ready().await;
    kill_in_flight(site, &gateway, TestRequest::post("/pay/9")).await;
    site.tree().await.persistent_nodes().await
}

/// Kills a gateway during a request. Returns when its session has ended.
async fn kill_in_flight(site: &TestSite, gateway: &Gateway, ask: TestRequest) {
    let HeldRequest { request, latch, .. } = site.origin.hold_request(gateway, ask).await;
    gateway.signal(Signal::KILL);
    request.result().await.expect_err("nobody is left to answer");
    latch.release();
    site.tree().await.assert_no_locks().await;
}

/// The status and the reason of an answer. The addresses in a refusal differ between versions.
fn status_and_reason(answer: &ClientResponse) -> (u16, String) {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, problem["reason"].as_str().unwrap_or_default().to_owned())
}

/// Checks that gateways of this version have the data of [`write_gateway_state`].
///
/// # Panics
/// If the gateways have lost some of the data.
pub async fn assert_gateway_state(site: &TestSite, version: &Path) {
    let arrived = || [7, 8, 9].map(|account| site.origin.count(&format!("/pay/{account}")));
    let before = arrived();
    let gateway = GatewayLaunch::new(&policy_with_operations(site, "gw-3"))
        .with_binary(version)
        .without_init()
        .start()
        .await;
    gateway.wait_ready().await;
    assert_eq!(status_and_reason(&gateway.send(&pay(7, "done")).await), (409, "already-done".into()));
    assert_eq!(status_and_reason(&gateway.send(&pay(8, "lost")).await), (409, "outcome-unknown".into()));
    // All running gateways must fence a request in the same way, so this gateway ends before one with another policy
    // starts.
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    let gateway = GatewayLaunch::new(&policy_with_delay(site, "gw-4"))
        .with_binary(version)
        .without_init()
        .start()
        .await;
    gateway.wait_ready().await;
    assert_eq!(status_and_reason(&gateway.send(&TestRequest::post("/pay/9")).await), (423, "delayed".into()));
    assert_eq!(arrived(), before, "it was done again");
}
