//! The time that a gateway promised to the client of a lease is kept, whatever ends the lease: an unknown outcome, its
//! age, a reload, the end of its gateway, or an operator.

use std::time::{Duration, Instant};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    leases::{ClientLease, LeaseTokens, OPERATOR, acquire_request, json_body},
    site::TestSite,
};
use serde_json::json;
use tokio::time::sleep;

use super::{pay, start_one, wait_lease_over};

/// An unknown outcome ends the lease under which it happened, and the key stays held for the promised `held_for_ms`.
#[tokio::test]
async fn unknown_outcome_retires_lease() {
    let (site, _tokens, gateway) = start_one().await;
    let asked = Instant::now();
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    site.origin.script("/pay/7", [fencegate_tests::origin::OriginAction::Reset]);
    let broken = gateway.send(&lease.with_lease(pay())).await;
    assert_eq!(broken.outcome(), Some(FencingOutcome::Unknown));
    assert_eq!(wait_lease_over(&lease, &gateway).await, "retired");
    let late = gateway.send(&lease.with_lease(pay())).await;
    assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"));
    // The client of the lease may work elsewhere for the time that it was told.
    let told = Instant::now();
    let held_for = lease.document["held_for_ms"].as_u64().expect("a number");
    assert!(held_for > 500, "nothing to be seen with {held_for}");
    ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let all = asked.elapsed();
    assert!(
        all >= Duration::from_millis(held_for),
        "{all:?} of {held_for} ms, {:?} after the end",
        told.elapsed()
    );
}

/// A lease may wait for longer than its TTL, and no renewal carries it beyond `leases.max_age`.
#[tokio::test]
async fn lease_age_is_limited_by_policy() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(
        &tokens
            .policy(&site, "gw-1")
            .with("/leases/max_age", "2s")
            .with("/leases/max_ttl", "2s")
            .with("/leases/default_ttl", "1s"),
    )
    .await;
    let holder = ClientLease::acquire(&gateway, json!({"keys": ["job/1"], "ttl_ms": 900})).await;
    let next =
        ClientLease::acquire(&gateway, json!({"keys": ["job/1"], "ttl_ms": 300, "wait_ms": 10_000})).await;
    assert!(next.token() > holder.token());
    let old = ClientLease::acquire(&gateway, json!({"keys": ["job/2"], "ttl_ms": 2000})).await;
    let begun = Instant::now();
    let why = loop {
        let renewed = old.renew(&gateway).await;
        if renewed.status == 412 {
            break wait_lease_over(&old, &gateway).await;
        }
        let told = json_body(&renewed);
        let left = Duration::from_secs(2).saturating_sub(begun.elapsed());
        let held_for = Duration::from_millis(told["held_for_ms"].as_u64().expect("a number"));
        assert!(held_for <= left + Duration::from_millis(200), "{held_for:?} of {left:?}");
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(why, "too-old");
}

/// A reload that would move the lock of a lease is refused; one that withdraws its key refuses the next renewal.
#[tokio::test]
async fn reload_moves_no_leased_lock() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let curator = json!({"key": "account/{path.account}", "wait": "5s", "layout": "curator-mutex", "lock_path": "/locks/account-{path.account}", "hold": {"mode": "strict"}});
    let moved =
        policy.clone().with("/routes/0/fence", curator).with("/leases/principals/0/keys", json!(["job/*"]));
    gateway.rewrite(&moved);
    let (code, report) = gateway.reload(&[]).await;
    assert!(code != Some(0) && report["said"].to_string().contains("lease"), "{code:?} {report}");
    assert_eq!(gateway.send(&lease.with_lease(pay())).await.status, 200, "the old plan is in force");

    gateway.rewrite(&policy.with("/leases/principals/0/keys", json!(["job/*"])));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    let refused = lease.renew(&gateway).await;
    assert_eq!((refused.status, refused.reason().as_str()), (403, "lease-forbidden"));
    assert_eq!(lease.release(&gateway).await.status, 204);
    gateway.rewrite(&moved);
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!(code, Some(0), "{report}");
}

/// A stopping gateway frees a leased key only after the promised `held_for_ms`, and an idle key at once.
#[tokio::test]
async fn stopping_gateway_keeps_promised_lease_time() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policies = ["gw-1", "gw-2"].map(|name| tokens.policy(&site, name).with_linger("60s"));
    let (one, other) = Gateway::start_both(&policies[0], &policies[1]).await;
    assert_eq!(one.send(&TestRequest::post("/pay/8")).await.status, 200, "idle from here on");
    let asked = Instant::now();
    let lease = ClientLease::acquire_exclusive(&one, "account/7").await;
    let held_for = Duration::from_millis(lease.document["held_for_ms"].as_u64().expect("a number"));
    let waiting = one.begin(acquire_request(&json!({"keys": ["account/7"], "wait_ms": 15_000})));
    site.tree().await.wait_locks("it waits", |locks| locks.len() >= 3).await;
    one.signal(Signal::TERM);
    let refused = waiting.answer().await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "draining"));
    assert!(one.exit().await.success());
    let freed = asked.elapsed();
    assert_eq!(other.send(&TestRequest::post("/pay/8")).await.status, 200);
    assert!(asked.elapsed() - freed < Duration::from_secs(1), "the idle key waits for the session timeout");
    let next = ClientLease::acquire_exclusive(&other, "account/7").await;
    assert!(asked.elapsed() >= held_for && next.token() > lease.token());
}

/// A lease that an operator breaks stays held for as long as its client was promised.
#[tokio::test]
async fn broken_lease_blocks_for_promised_time() {
    let (_site, _tokens, gateway) = start_one().await;
    let asked = Instant::now();
    let lease = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    let held_for = Duration::from_millis(lease.document["held_for_ms"].as_u64().expect("a number"));
    let place = format!("/.fencegate/v1/leases/{}/break", lease.reference);
    let broken = TestRequest::post(&place).field("authorization", &format!("Bearer {OPERATOR}"));
    assert_eq!(gateway.send(&broken).await.status, 200);
    assert_eq!(lease.renew(&gateway).await.status, 412);
    let next = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    assert!(asked.elapsed() >= held_for, "{:?} of {held_for:?}", asked.elapsed());
    assert!(next.token() > lease.token());
}

/// A lease that ends before its response is sent is not granted: the answer is 503 `lock-service`.
#[tokio::test]
async fn lease_expired_before_response_is_refused() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1");
    // A failpoint delays the answer after the grant for longer than the lease lasts.
    let gateway = GatewayLaunch::new(&policy).failpoint("after_lease_granted", "1*sleep(2000)").start().await;
    gateway.wait_ready().await;
    let brief = acquire_request(&json!({"keys": ["job/1"], "ttl_ms": 300}));
    let refused = gateway.send(&brief).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "lock-service"), "{refused:?}");
    let told = json_body(&refused);
    assert!(told.to_string().contains("ended before it could be told"), "{told}");
    assert_eq!(ClientLease::acquire_exclusive(&gateway, "job/1").await.document["state"], "held");
}
