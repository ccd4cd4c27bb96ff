//! The session deadline passes while the upstream works: an upstream that compares tokens may finish, and the exchange
//! with any other is abandoned.
//!
//! At level `upstream` the exchange is completed and marked. At level `none` it is abandoned before the next holder
//! begins. A response that was half written is never completed.

use fencegate_testkit::{fault_proxy::FaultProxy, wait::QUIET};
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::{Gateway, PendingRequest},
    origin::{Latch, OriginAction, OriginReply},
    site::TestSite,
};

/// Starts a gateway whose request the origin is executing, and cuts the gateway off from ZooKeeper.
async fn start_and_cut_off(
    site: &TestSite,
    level: &str,
    act: fn(Latch) -> OriginAction,
) -> (Gateway, PendingRequest, Latch) {
    let relay = FaultProxy::start(site.zookeeper);
    let policy = site.policy("gw-1").with_zookeeper(relay.address).with("/upstreams/ledger/fencing", level);
    let gateway = Gateway::start(&policy).await;
    let latch = Latch::default();
    site.origin.script("/pay/7", [act(latch.clone())]);
    let asked = gateway.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 1).await;
    drop(relay);
    (gateway, asked, latch)
}

fn hold_before_head(latch: Latch) -> OriginAction {
    OriginAction::Hold(latch, OriginReply::ok())
}

fn hold_within_body(latch: Latch) -> OriginAction {
    OriginAction::HoldInBody(latch, OriginReply::with_body("half of this comes late"))
}

/// At level `upstream` a request that was written in full is finished, and its response is marked `proof=lost`.
#[tokio::test]
async fn upstream_level_finishes_complete_request() {
    let site = TestSite::fresh().await;
    let (gateway, asked, latch) = start_and_cut_off(&site, "upstream", hold_before_head).await;
    gateway.wait_unready().await;
    let next = site.gateway("gw-2").await;
    let newer = next.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 2).await;
    assert!(!asked.is_over(), "given up while the upstream worked");
    latch.release();

    let answer = asked.answer().await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
    let outcome = answer.field("fencing-outcome").unwrap_or_default();
    assert!(outcome.starts_with("done") && outcome.contains("proof=lost"), "{outcome}");
    assert_eq!(newer.answer().await.status, 200);
    let log = site.origin.log();
    assert!(
        log.records[0].abandoned.is_none() && log.records[1].expect_token() > log.records[0].expect_token()
    );
}

async fn assert_abandoned_before_next_holder(act: fn(Latch) -> OriginAction) {
    let site = TestSite::fresh().await;
    let (_gateway, asked, latch) = start_and_cut_off(&site, "none", act).await;
    let next = site.gateway("gw-2").await;
    let newer = next.begin(TestRequest::post("/pay/7"));

    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown));
    assert_eq!(answer.field("retry-after"), None, "it may have happened");
    assert_eq!(newer.answer().await.status, 200);
    let second = site.origin.wait_for_request("/pay/7", 2).await;
    let abandoned = site.origin.log().records[0].abandoned.expect("the connection was closed");
    assert!(abandoned < second.arrived);
    latch.release();
}

/// At level `none` a request without a response is abandoned before the next holder begins.
#[tokio::test]
async fn level_none_abandons_unanswered_request() {
    assert_abandoned_before_next_holder(hold_before_head).await;
}

/// At level `none` a request with half a response is abandoned before the next holder begins.
#[tokio::test]
async fn level_none_abandons_half_answered_request() {
    assert_abandoned_before_next_holder(hold_within_body).await;
}

/// At level `none` a response that nobody reads is abandoned before the next holder begins.
///
/// The answer is larger than the kernel buffers, so the gateway waits for its client when the proof ends.
#[tokio::test]
async fn level_none_abandons_unread_response() {
    let site = TestSite::fresh().await;
    let relay = FaultProxy::start(site.zookeeper);
    let policy = site.policy("gw-1").with_zookeeper(relay.address).with("/upstreams/ledger/fencing", "none");
    let gateway = Gateway::start(&policy).await;
    let next = site.gateway("gw-2").await;
    site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body(vec![7; 48 << 20]))]);
    let mut reader = RawClient::connect_narrow(gateway.public).await.expect("listens");
    reader.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await.expect("connected");
    let mut answer = reader.read_head().await.expect("a head");
    drop(relay);

    assert_eq!(next.send(&TestRequest::post("/pay/7")).await.status, 200);
    let first = site.origin.wait_for_request("/pay/7", 1).await;
    let second = site.origin.wait_for_request("/pay/7", 2).await;
    assert!(first.ended.is_some_and(|ended| ended < second.arrived), "both at work: {first:?}");
    reader.read_body(&mut answer).await.expect_err("cut off, not completed");
}

/// A request that is half written when the proof ends is never completed: its body is larger than the kernel buffers.
#[tokio::test]
async fn half_written_request_is_never_completed() {
    let site = TestSite::fresh().await;
    let relay = FaultProxy::start(site.zookeeper);
    let policy =
        site.policy("gw-1").with_zookeeper(relay.address).with("/listeners/public/limits/max_body", "64MiB");
    let gateway = Gateway::start(&policy).await;
    let next = site.gateway("gw-2").await;
    let latch = Latch::default();
    site.origin.script("/pay/7", [OriginAction::ReadLater(latch.clone())]);

    // A body without a content type would be read as a form first.
    let large =
        TestRequest::post("/pay/7").field("content-type", "application/octet-stream").body(vec![7; 48 << 20]);
    let asked = gateway.begin(large);
    site.origin.wait_for("the head of the request", |log| log.records.first().map(drop)).await;
    drop(relay);
    assert_eq!(next.send(&TestRequest::post("/pay/7")).await.status, 200, "the key is another's");
    assert!(!asked.is_over(), "not exercised: written in full");
    latch.release();

    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown));
    tokio::time::sleep(QUIET).await;
    assert!(site.origin.log().records[0].whole.is_none(), "completed under a lost lock");
}
