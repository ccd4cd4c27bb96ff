//! What a client was told of its lease is kept, whatever ends it: an unknown outcome, its age, a reload, the end of its gateway, an
//! operator.

use std::time::{Duration, Instant};

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    leases::{ClientLease, LeaseTokens, OPERATOR, acquire_request, json_body},
    site::TestSite,
};
use serde_json::json;
use tokio::time::sleep;

use super::{one, over, pay};

#[tokio::test]
async fn an_unknown_outcome_ends_the_lease_under_which_it_happened() {
    let (site, _tokens, gateway) = one().await;
    let asked = Instant::now();
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    site.origin.script("/pay/7", [fencegate_tests::origin::Act::Reset]);
    let broken = gateway.send(&lease.with_lease(pay())).await;
    assert_eq!(broken.outcome(), Some(FencingOutcome::Unknown));
    assert_eq!(over(&lease, &gateway).await, "retired");
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

#[tokio::test]
async fn a_lease_waits_for_longer_than_it_is_held_and_becomes_no_older_than_the_policy_says() {
    let (site, tokens) = (TestSite::fresh().await, LeaseTokens::default());
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
            break over(&old, &gateway).await;
        }
        let told = json_body(&renewed);
        let left = Duration::from_secs(2).saturating_sub(begun.elapsed());
        let held_for = Duration::from_millis(told["held_for_ms"].as_u64().expect("a number"));
        assert!(held_for <= left + Duration::from_millis(200), "{held_for:?} of {left:?}");
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(why, "too-old");
}

#[tokio::test]
async fn a_reload_moves_no_lock_under_a_lease_and_takes_keys_from_who_renews() {
    let (site, tokens) = (TestSite::fresh().await, LeaseTokens::default());
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

#[tokio::test]
async fn a_gateway_that_stops_gives_no_lease_on_before_its_time_and_keeps_no_idle_key() {
    let (site, tokens) = (TestSite::fresh().await, LeaseTokens::default());
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

#[tokio::test]
async fn a_lease_that_an_operator_breaks_is_held_for_as_long_as_its_client_was_told() {
    let (_site, _tokens, gateway) = one().await;
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

#[tokio::test]
async fn a_lease_that_ends_before_its_client_hears_of_it_is_no_answer() {
    let (site, tokens) = (TestSite::fresh().await, LeaseTokens::default());
    let policy = tokens.policy(&site, "gw-1");
    // The gateway stands still between the grant and the answer, for longer than the lease lasts.
    let gateway = GatewayLaunch::new(&policy).failpoint("after_lease_granted", "1*sleep(2000)").start().await;
    gateway.wait_ready().await;
    let brief = acquire_request(&json!({"keys": ["job/1"], "ttl_ms": 300}));
    let refused = gateway.send(&brief).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "lock-service"), "{refused:?}");
    let told = json_body(&refused);
    assert!(told.to_string().contains("ended before it could be told"), "{told}");
    assert_eq!(ClientLease::acquire_exclusive(&gateway, "job/1").await.document["state"], "held");
}
