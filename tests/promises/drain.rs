//! A gateway that gets SIGTERM finishes the requests in flight, refuses all others, and leaves no node in ZooKeeper.
//!
//! It releases 500 idle keys in one transaction for each session, and 2,000 keys among the faults. A drain that ends
//! before its requests releases no key of theirs.

use std::time::{Duration, Instant};

use fencegate_testkit::{child::Signal, wait::QUIET};
use fencegate_tests::{
    client::{FencingOutcome, Http1Client, TestRequest},
    each_once::each_once,
    effort::effort,
    gateway::Gateway,
    held_request::HeldRequest,
    site::TestSite,
    zookeeper::last_zxid,
};

/// After SIGTERM a gateway takes no new work, finishes the requests in flight, and leaves no node in ZooKeeper.
#[tokio::test]
async fn sigterm_finishes_requests_in_flight() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let HeldRequest { request: in_flight, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let waiting = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;
    let mut idle = Http1Client::connect(gateway.public).await.expect("listens");
    assert_eq!(idle.send(&TestRequest::get("/x")).await.expect("answered").status, 200);

    gateway.signal(Signal::TERM);
    // Load balancers have to stop sending requests.
    gateway.wait_unready().await;
    tokio::time::sleep(QUIET).await;
    assert!(!in_flight.is_over(), "given up instead of finished");
    let late = TestRequest::post("/pay/8").send_to(gateway.public).await;
    assert!(late.is_err() || late.is_ok_and(|answer| answer.reason() == "draining"), "took new work");
    latch.release();
    let finished = in_flight.answer().await;
    assert_eq!((finished.status, finished.outcome()), (200, Some(FencingOutcome::Done)));
    // The request was accepted before the signal. It is served or refused as not dispatched, and never lost.
    let waited = waiting.answer().await;
    let outcome = (waited.status, waited.outcome());
    let served = outcome == (200, Some(FencingOutcome::Done));
    assert!(served || outcome == (503, Some(FencingOutcome::NotDispatched)), "{waited:?}");

    assert_eq!(gateway.exit().await.code(), Some(0));
    assert_eq!(tree.locks().await, [""; 0]);
    let members: Vec<String> =
        tree.paths().await.into_iter().filter(|path| path.starts_with("/members/")).collect();
    assert_eq!(members, [""; 0]);
    assert_eq!(site.origin.count("/pay/7"), if served { 2 } else { 1 });
}

#[tokio::test]
async fn idle_gateway_stops_at_once() {
    let site = TestSite::alone().await;
    let gateway = site.gateway("gw-1").await;
    let _idle = Http1Client::connect(gateway.public).await.expect("listens");
    let signalled = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert!(signalled.elapsed() < Duration::from_secs(2), "took {:?}", signalled.elapsed());
}

/// When a drain ends before its requests, the upstream may still be at work. So the gateway does not release the key, and
/// it stays held until the session timeout.
#[tokio::test]
async fn interrupted_drain_keeps_keys_until_expiry() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/fencing", "none")
        .with("/listeners/public/timeouts/drain", "300ms");
    let (one, two) = tokio::join!(Gateway::start(&policy), site.gateway("gw-2"));
    let HeldRequest { request: lost, latch, .. } =
        site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let next = two.begin(TestRequest::post("/pay/7"));

    one.signal(Signal::TERM);
    assert_eq!(one.exit().await.code(), Some(1), "not a clean end");
    let exited = Instant::now();
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    assert_eq!(next.answer().await.status, 200);
    let gap = site.origin.wait_for_request("/pay/7", 2).await.arrived - exited;
    assert!(gap > Duration::from_millis(1200), "handed on after {gap:?}");
    latch.release();
}

/// A drain removes all lock nodes of a session in one transaction, however many keys the gateway holds.
#[tokio::test]
async fn drain_releases_idle_keys_in_bulk() {
    let keys = effort(500, 2000);
    let (_zookeeper, site) = TestSite::with_own_zookeeper().await;
    let policy = site.policy("gw-1").with("/zookeeper/session_timeout", "20s").with_linger("9m");
    let gateway = Gateway::start(&policy).await;
    each_once(gateway.public, keys, |key| format!("/pay/{key}")).await;
    let tree = site.tree().await;
    assert_eq!(tree.locks().await.len(), keys, "not exercised");
    let before = last_zxid(site.zookeeper).await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
    let writes = last_zxid(site.zookeeper).await - before;
    assert_eq!(tree.locks().await, [""; 0]);
    // The limit leaves room for the heartbeats during the drain.
    assert!(writes < effort(100, 200) as u64, "{writes} transactions for {keys} keys");
}
