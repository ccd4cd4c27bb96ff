//! If the gateway panics while it works for a key, the key is served again at once and never held twice.
//!
//! The gateway panics while a lock of one key or of a set is requested, waited for, or held. The key is served again
//! within 2 s. At level `none`, after the head of a response, the key has no holder until the upstream has had its
//! time.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::{QUIET, wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    history::History,
    origin::{Latch, OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::link::HOLDS;

/// Longer than a hand-over takes on a busy machine, and shorter than the session timeout and the wait of a request,
/// which would free the key as well.
const SOON: Duration = Duration::from_secs(8);
const WAIT: &str = "30s";

/// The policy of a gateway whose session outlives the test and ends none of its waits.
fn patient_policy(site: &TestSite, name: &str) -> TestPolicy {
    site.policy_without_janitor(name)
        .with("/routes/0/fence/wait", WAIT)
        .with("/upstreams/ledger/response_timeout", "30s")
}

async fn start_other(site: &TestSite) -> Gateway {
    Gateway::start(&patient_policy(site, "gw-2")).await
}

async fn start_panicking(site: &TestSite, failpoint: &str, hold: Value) -> Gateway {
    let policy = patient_policy(site, "gw-1").with("/defaults/hold", hold);
    let gateway = GatewayLaunch::new(&policy).failpoint(failpoint, "1*panic").start().await;
    gateway.wait_ready().await;
    gateway
}

async fn assert_served_at_once(gateway: &Gateway, path: &str) {
    let asked = Instant::now();
    let answer = gateway.send(&TestRequest::post(path)).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
    assert!(asked.elapsed() < SOON, "after {:?}", asked.elapsed());
}

/// A panic while a lock node is created costs one request and leaves no node.
#[tokio::test]
async fn panic_during_create_costs_one_request() {
    for hold in HOLDS {
        let site = TestSite::fresh().await;
        let tree = site.tree().await;
        let (gateway, other) =
            tokio::join!(start_panicking(&site, "after_create_sent", hold()), start_other(&site));
        let told = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((told.status, told.reason().as_str()), (503, "lock-service"), "{told:?}");
        assert_eq!(told.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(told.took() < SOON, "it waited in vain: {:?}", told.took());
        assert_served_at_once(&gateway, "/pay/7").await;
        assert_served_at_once(&other, "/pay/7").await;
        tree.assert_no_locks().await;
    }
}

/// Starts a gateway that panics at the failpoint, with a route that holds two keys at once.
async fn start_panicking_with_set(site: &TestSite, failpoint: &str) -> Gateway {
    let policy = patient_policy(site, "gw-1").with_route(json!({
        "name": "move", "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"], "wait": WAIT},
    }));
    let gateway = GatewayLaunch::new(&policy).failpoint(failpoint, "1*panic").start().await;
    gateway.wait_ready().await;
    gateway
}

/// Returns when the gateway has panicked and the waiters of that tenure are refused. A later request waits for the
/// next tenure.
async fn wait_panicked(gateway: &Gateway) {
    gateway.wait_line("the panic", |line| line.message().starts_with("lock.failed")).await;
    // This is polled, because no event reports which keys are held.
    let given_up = async {
        while accepts_joiners(gateway).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until("the tenure to end", given_up, || gateway.log()).await;
}

/// True if a new request may join a cached tenure.
async fn accepts_joiners(gateway: &Gateway) -> bool {
    let answer = gateway.admin("/api/v1/locks").await;
    let told: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let locks = told["locks"].as_array().expect("a list").iter();
    let mut held = locks.flat_map(|lock| lock["held"].as_array().expect("a list"));
    held.any(|held| held["keeping"] == "cached" && held["ending"] == false)
}

/// A panic while the lock nodes of a set are created costs one request and leaves no node.
#[tokio::test]
async fn panic_during_set_create_leaves_nothing() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let gateway = start_panicking_with_set(&site, "after_create_sent").await;
    assert_eq!(gateway.send(&TestRequest::post("/move/6/7")).await.status, 503);
    assert_served_at_once(&gateway, "/move/7/6").await;
    tree.assert_no_locks().await;
}

/// After a panic a held key is granted again when its request is over, and not before.
///
/// The request in flight is not disturbed. Later requests wait for its end, at this gateway and at the other one.
#[tokio::test]
async fn panic_while_holding_waits_for_request() {
    for hold in HOLDS {
        let site = TestSite::fresh().await;
        let tree = site.tree().await;
        let (gateway, other) =
            tokio::join!(start_panicking(&site, "while_watching", hold()), start_other(&site));
        let first = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
        wait_panicked(&gateway).await;
        let next = [gateway.begin(TestRequest::post("/pay/7")), other.begin(TestRequest::post("/pay/7"))];
        sleep(QUIET).await;
        assert_eq!(site.origin.count("/pay/7"), 1, "held twice");
        let answer = first.finish().await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        for next in next {
            assert_eq!(next.answer().await.status, 200);
        }
        assert_served_at_once(&gateway, "/pay/7").await;
        tree.assert_no_locks().await;
        History::from_log(&site.origin.log()).assert_holds();
    }
}

/// After a panic with two held keys, one wanted by this gateway and one by another, neither key is released before the
/// request is over.
#[tokio::test]
async fn panic_holding_set_waits_for_request() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let (gateway, other) =
        tokio::join!(start_panicking_with_set(&site, "while_watching"), start_other(&site));
    let first = site.origin.hold_request(&gateway, TestRequest::post("/move/6/7")).await;
    wait_panicked(&gateway).await;
    let next = [gateway.begin(TestRequest::post("/pay/6")), other.begin(TestRequest::post("/pay/7"))];
    sleep(QUIET).await;
    assert_eq!((site.origin.count("/pay/6"), site.origin.count("/pay/7")), (0, 0), "held twice");
    let answer = first.finish().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    for next in next {
        assert_eq!(next.answer().await.status, 200);
    }
    assert_served_at_once(&gateway, "/move/7/6").await;
    tree.assert_no_locks().await;
    History::from_log(&site.origin.log()).assert_holds();
}

/// After a panic while a request waits, it is refused and leaves the queues of all its keys. The holder at the other
/// gateway is not affected.
#[tokio::test]
async fn panic_while_waiting_costs_one_request() {
    for hold in HOLDS {
        let site = TestSite::fresh().await;
        let (gateway, other) =
            tokio::join!(start_panicking(&site, "while_waiting", hold()), start_other(&site));
        wait_and_panic(&site, &gateway, &other, "/pay/7").await;
    }
    let site = TestSite::fresh().await;
    let (gateway, other) = tokio::join!(start_panicking_with_set(&site, "while_waiting"), start_other(&site));
    wait_and_panic(&site, &gateway, &other, "/move/6/7").await;
}

/// Lets the other gateway hold one of the keys, and sends the request that panics while it waits.
async fn wait_and_panic(site: &TestSite, gateway: &Gateway, other: &Gateway, path: &str) {
    let tree = site.tree().await;
    let holder = site.origin.hold_request(other, TestRequest::post("/pay/7")).await;
    let told = gateway.send(&TestRequest::post(path)).await;
    assert_eq!((told.status, told.reason().as_str()), (503, "lock-service"), "{told:?}");
    // A request that waits in vain gets 423.
    assert_eq!(told.outcome(), Some(FencingOutcome::NotDispatched));
    tree.wait_waiters(0).await;
    assert_eq!(holder.finish().await.status, 200);
    assert_served_at_once(gateway, path).await;
    tree.assert_no_locks().await;
    History::from_log(&site.origin.log()).assert_holds();
}

/// After a panic between head and body of a response, the upstream may still work. Where no service compares tokens,
/// the key stays held until `response_timeout` has passed.
#[tokio::test]
async fn panic_after_response_head_keeps_key() {
    const TIME: Duration = Duration::from_millis(1500);
    for hold in HOLDS {
        let site = TestSite::fresh().await;
        let ours = |name| {
            site.policy_without_janitor(name)
                .with("/defaults/hold", hold())
                .with("/upstreams/ledger/fencing", "none")
                .with("/upstreams/ledger/response_timeout", "1500ms")
                .with("/routes/0/fence/wait", "20s")
        };
        let first_policy = ours("gw-1");
        let other_policy = ours("gw-2");
        let gateway =
            GatewayLaunch::new(&first_policy).failpoint("after_answer_head", "1*panic").start().await;
        gateway.wait_ready().await;
        let other = Gateway::start(&other_policy).await;
        let latch = Latch::default();
        site.origin.script("/pay/7", [OriginAction::HoldInBody(latch.clone(), OriginReply::ok())]);
        let began = Instant::now();
        let told = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!(told.outcome(), Some(FencingOutcome::Unknown), "{told:?}");
        assert!(began.elapsed() < TIME, "not exercised: it took {:?}", began.elapsed());
        for next in [gateway.begin(TestRequest::post("/pay/7")), other.begin(TestRequest::post("/pay/7"))] {
            assert_eq!(next.answer().await.status, 200);
            assert!(began.elapsed() >= TIME, "given on after {:?}", began.elapsed());
        }
        latch.release();
    }
}
