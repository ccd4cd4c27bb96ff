//! A request for a key that its own gateway keeps waits no longer than it would at another gateway, and is served in
//! order.
//!
//! The tests cover requests that try once, requests that wait for a limited time, and a full queue.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    held_request::HeldRequest,
    history::History,
    site::TestSite,
};
use serde_json::json;

use super::cached::{start_keeping, with_cached_rules};

/// A full queue refuses a further request at once with 429 and serves its waiters; another key has its own queue.
#[tokio::test]
async fn full_queue_refuses_and_serves_waiters() {
    let site = TestSite::alone().await;
    let policy = with_cached_rules(site.policy("gw-1"), json!({})).with("/routes/0/fence/queue", 3);
    let gateway = Gateway::start(&policy).await;
    let HeldRequest { request: holder, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let waiting: Vec<_> = (0..3).map(|_| gateway.begin(TestRequest::post("/pay/7"))).collect();
    gateway.wait_gauge("fencegate_lock_waiters", 3.0).await;

    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (429, "queue-full"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(answer.took() < Duration::from_secs(1), "took {:?}", answer.took());
    assert_eq!(
        gateway.send(&TestRequest::post("/pay/8")).await.status,
        200,
        "another key has a queue of its own"
    );
    latch.release();
    for request in waiting.into_iter().chain([holder]) {
        assert_eq!(request.answer().await.status, 200);
    }
    History::from_log(&site.origin.log()).assert_holds();
}

/// The holder of the key, as seen by the gateway that receives the request.
#[derive(Debug, Clone, Copy)]
enum HolderKind {
    Itself,
    Another,
}

async fn assert_waits_bounded(holder: HolderKind, hold: &str) {
    let site = TestSite::alone().await;
    let policy = |name, wait: &str| {
        site.policy(name).with("/defaults/hold", json!({"mode": hold})).with("/routes/0/fence/wait", wait)
    };
    let tree = site.tree().await;
    let trying = policy("try", "0s");
    // The wait is longer than 1 s, because each request waits that long for ZooKeeper's reply in any case.
    let timed = policy("timed", "1500ms");
    let other = policy("other", "5s");
    let (trying, timed, other) =
        tokio::join!(Gateway::start(&trying), Gateway::start(&timed), Gateway::start(&other));
    let assert_bounded = async |path: &str, gateway: &Gateway, fields: Option<&str>, ms: Range<u64>| {
        let case = format!("{holder:?} {hold} {fields:?} {ms:?} ms");
        let request =
            fields.map_or(TestRequest::post(path), |prefer| TestRequest::post(path).field("Prefer", prefer));
        assert_eq!(gateway.send(&request).await.status, 200, "{case}: free");
        // The key is free, whether or not the gateway keeps it.
        assert_eq!(gateway.send(&request).await.status, 200, "{case}: free again");
        let holder_gateway = if let HolderKind::Itself = holder { gateway } else { &other };
        let latch = site.origin.hold(path);
        let held = holder_gateway.begin(TestRequest::post(path).field("X-Taker", "1"));
        let taken = |log: &fencegate_tests::origin::OriginLog| {
            log.requests_for(path)
                .any(|record| record.ended.is_none() && record.whole.is_some())
                .then_some(())
        };
        site.origin.wait_for("the key to be taken", taken).await;
        let before = site.origin.count(path);
        let answer = gateway.send(&request).await;
        assert_eq!((answer.status, answer.reason().as_str()), (423, "locked"), "{case}: {answer:?}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{case}");
        let expected = Duration::from_millis(ms.start)..Duration::from_millis(ms.end);
        assert!(expected.contains(&answer.took()), "{case}: took {:?}", answer.took());
        assert_eq!(site.origin.count(path), before, "{case}");
        latch.release();
        assert_eq!(held.answer().await.status, 200, "{case}");
    };
    // Each case has a key of its own: a request that does not wait is refused while a peer keeps an idle tenure.
    tokio::join!(
        assert_bounded("/pay/1", &trying, None, 0..700),
        assert_bounded("/pay/2", &trying, Some("wait=60"), 0..700),
        assert_bounded("/pay/3", &timed, None, 1500..2500),
        assert_bounded("/pay/4", &timed, Some("wait=0"), 0..700),
        assert_bounded("/pay/5", &timed, Some("wait=60"), 1500..2500),
    );
    tree.assert_no_locks().await;
    History::from_log(&site.origin.log()).assert_holds();
}

/// Behind a cached grant of its own gateway a request waits no longer than its route and `Prefer: wait` allow.
#[tokio::test]
async fn wait_is_bounded_behind_own_grant() {
    assert_waits_bounded(HolderKind::Itself, "cached").await;
}

/// Behind a cached grant of a peer a request waits no longer than its route and `Prefer: wait` allow.
#[tokio::test]
async fn wait_is_bounded_behind_peer_grant() {
    assert_waits_bounded(HolderKind::Another, "cached").await;
}

/// Behind a strict holder a request waits no longer than its route and `Prefer: wait` allow.
#[tokio::test]
async fn wait_is_bounded_behind_strict_holder() {
    assert_waits_bounded(HolderKind::Another, "strict").await;
}

/// Clients that hang up leave the local queue, and the other clients are served in their order.
#[tokio::test]
async fn hangup_leaves_local_queue_in_order() {
    let site = TestSite::fresh().await;
    let gateway = start_keeping(&site, "gw-1").await;
    let holder =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7").field("x-attempt", "0")).await;
    let mut waiting = BTreeMap::new();
    for n in 1..=6_u32 {
        waiting.insert(n, gateway.begin(TestRequest::post("/pay/7").field("x-attempt", &n.to_string())));
        gateway.wait_gauge("fencegate_lock_waiters", n.into()).await;
    }
    for n in [1, 4, 6] {
        waiting.remove(&n).expect("asked").hang_up();
    }
    gateway.wait_gauge("fencegate_lock_waiters", 3.0).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    assert_eq!(holder.finish().await.status, 200);
    for waiting in waiting.into_values() {
        assert_eq!(waiting.answer().await.status, 200);
    }
    let log = site.origin.log();
    let order: Vec<_> =
        log.requests_for("/pay/7").filter_map(|record| record.request.field("x-attempt")).collect();
    assert_eq!(order, ["0", "2", "3", "5"]);
    let tokens: Vec<_> = log.requests_for("/pay/7").map(|record| record.expect_token().dispatch()).collect();
    assert!(tokens.is_sorted() && tokens[0] == 1, "{tokens:?}");
}
