//! A holder whose session ends returns the requests that were forwarded to it, and a gateway that drains does not wait
//! for a peer.

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    held_request::HeldRequest,
    site::TestSite,
    zookeeper_proxy::ZooKeeperProxy,
};

use super::forwarding::{forwarding_policy, hold_forwarded, make_holder};

/// A holder whose session ends returns waiting forwarded requests at once, and their own gateway serves them.
#[tokio::test]
async fn expired_holder_returns_waiting_requests() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let first =
        forwarding_policy(&site, "gw-1").with_zookeeper(link.address()).with("/zookeeper/sessions", 1);
    let second = forwarding_policy(&site, "gw-2").with("/routes/0/fence/wait", "60s");
    let (one, two) = Gateway::start_both(&first, &second).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    make_holder(&one).await;
    let HeldRequest { request: working, latch, record } =
        site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let executing = record.expect_token();
    let waiting = two.begin(TestRequest::post("/pay/7"));
    one.wait_gauge("fencegate_lock_waiters", 1.0).await;

    link.end_sessions();

    // The earlier request is still at work when `gw-2` sends the returned one.
    let given_back = site.origin.wait_for_request("/pay/7", 3).await;
    assert_eq!(given_back.gateway, "gw-2");
    assert!(given_back.expect_token() > executing);
    latch.release();
    assert_eq!(waiting.answer().await.status, 200);
    // `working` was written in full, so its gateway waits for the answer. At an upstream that compares tokens, it may
    // overlap with the next request.
    drop(working.result().await);
}

/// A draining gateway does not wait for the answer of a peer: the request ends as unknown, the process with success.
#[tokio::test]
async fn drain_does_not_wait_for_peer() {
    let site = TestSite::fresh().await;
    let second = forwarding_policy(&site, "gw-2").with("/listeners/public/timeouts/drain", "2s");
    let first = forwarding_policy(&site, "gw-1");
    let (one, two) = Gateway::start_both(&first, &second).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    let (path, HeldRequest { request: pending, latch, .. }) =
        hold_forwarded(&site, &one, &two, TestRequest::post).await;

    two.signal(Signal::TERM);

    let answer = pending.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown));
    assert_eq!(two.exit().await.code(), Some(0), "a clean end");
    latch.release();
    one.wait_gauge("fencegate_requests_in_flight", 0.0).await;
    assert_eq!(site.origin.count(&path), 2, "executed once");
}
