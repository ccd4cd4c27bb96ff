//! If one gateway leases a key and another one has a route that locks the key otherwise, their plans are incompatible,
//! and the younger gateway gives way.

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    leases::{ClientLease, LeaseTokens, acquire_request},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

use super::pay;

/// The gauge of routes and patterns that are refused because of other gateways.
pub(super) const REFUSED: &str = "fencegate_config_refused_routes";

/// A gateway whose requests take the lock of another program, and which leases nothing.
pub(super) fn route_policy(site: &TestSite) -> TestPolicy {
    let fence = json!({"key": "account/{path.account}", "wait": "5s", "layout": "curator-mutex",
        "lock_path": "/locks/account-{path.account}", "hold": {"mode": "strict"}});
    site.policy("with-a-route").with("/routes/0/fence", fence)
}

/// A gateway that leases the key, and has no route for it.
pub(super) fn lease_policy(site: &TestSite, tokens: &LeaseTokens) -> TestPolicy {
    tokens.policy(site, "with-leases").with("/routes/0/fence", "none")
}

/// A key that an older gateway locks otherwise is not leased until that gateway stops.
#[tokio::test]
async fn younger_gateway_refuses_conflicting_lease() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let older = Gateway::start(&route_policy(&site)).await;
    let younger = Gateway::start(&lease_policy(&site, &tokens)).await;
    younger.wait_gauge(REFUSED, 1.0).await;
    let said = younger.wait_line("because of whom", |line| line.field("code") == "FG0550").await;
    assert_eq!((said.field("routes"), said.field("gateways")), ("leases of account/*", "with-a-route"));
    let account = acquire_request(&json!({"keys": ["account/7"], "wait_ms": 5000}));
    let refused = younger.send(&account).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "config-mismatch"));
    assert_eq!(older.send(&pay()).await.status, 200);
    // A key that no other gateway locks otherwise is leased as usual.
    ClientLease::acquire_exclusive(&younger, "job/1").await;
    older.stop().await;
    younger.wait_gauge(REFUSED, 0.0).await;
    ClientLease::acquire_exclusive(&younger, "account/7").await;
}

/// A route over keys that an older gateway leases is refused with `config-mismatch`, and the lease goes on.
#[tokio::test]
async fn younger_gateway_refuses_leased_route() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let older = Gateway::start(&lease_policy(&site, &tokens)).await;
    let lease = ClientLease::acquire_exclusive(&older, "account/7").await;
    let younger = Gateway::start(&route_policy(&site)).await;
    younger.wait_gauge(REFUSED, 1.0).await;
    let refused = younger.send(&pay()).await;
    let told = (refused.status, refused.reason(), refused.outcome());
    assert_eq!(told, (503, "config-mismatch".to_owned(), Some(FencingOutcome::NotDispatched)));
    assert_eq!(lease.renew(&older).await.status, 200);
    assert_eq!(older.metrics().await.sum(REFUSED, &[]), 0.0);
    assert_eq!(site.origin.count("/pay/7"), 0);
}

/// A key pattern that a reload withdraws keeps younger gateways out until its last lease is over.
#[tokio::test]
async fn withdrawn_pattern_blocks_while_leased() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = lease_policy(&site, &tokens);
    let older = Gateway::start(&policy).await;
    let lease = ClientLease::acquire_exclusive(&older, "account/7").await;
    older.rewrite(&policy.with("/leases/principals/0/keys", json!(["job/*"])));
    assert_eq!(older.reload(&[]).await.0, Some(0));
    let younger = Gateway::start(&route_policy(&site)).await;
    younger.wait_gauge(REFUSED, 1.0).await;
    assert_eq!(younger.send(&pay()).await.status, 503);
    assert_eq!(lease.release(&older).await.status, 204);
    younger.wait_gauge(REFUSED, 0.0).await;
    assert_eq!(younger.send(&pay()).await.status, 200);
}

/// Adds one route for each resource.
fn with_routes_for(policy: TestPolicy, resources: &[&str]) -> TestPolicy {
    resources.iter().fold(policy, |policy, resource| {
        policy.with_route(json!({
            "name": resource, "upstream": "ledger", "fence": {"key": format!("{resource}/{{path.id}}")},
            "match": {"methods": ["POST"], "path": format!("/{resource}/{{id}}")},
        }))
    })
}

/// A reload serves what it adds at once, while leases of a pattern that it withdraws go on.
///
/// A lease may live for hours, and the reload does not wait for it.
#[tokio::test]
async fn reload_waits_for_no_withdrawn_lease() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = lease_policy(&site, &tokens);
    let older = Gateway::start(&policy).await;
    let lease = ClientLease::acquire_exclusive(&older, "account/7").await;
    let withdrawn = policy.with("/leases/principals/0/keys", json!(["job/*"]));
    // The second reload does not wait for a lease of the first one.
    for resources in [&["book"][..], &["book", "shelf"]] {
        older.rewrite(&with_routes_for(withdrawn.clone(), resources));
        assert_eq!(older.reload(&[]).await.0, Some(0));
        for resource in resources {
            let answer = older.send(&TestRequest::post(&format!("/{resource}/7"))).await;
            assert_eq!(answer.status, 200, "{resource}: {answer:?}");
        }
    }
    // A gateway that starts after the reloads still learns of the lease.
    let younger = Gateway::start(&route_policy(&site)).await;
    younger.wait_gauge(REFUSED, 1.0).await;
    assert_eq!(younger.send(&pay()).await.status, 503);
    assert_eq!(lease.get(&older).await.status, 200);
    assert_eq!(lease.release(&older).await.status, 204);
    younger.wait_gauge(REFUSED, 0.0).await;
    assert_eq!(younger.send(&pay()).await.status, 200);
}

/// A lease whose key another pattern covers after a reload keeps its precedence over a route of a younger gateway.
///
/// A gateway that changes its plan counts as the youngest and yields to others, but not with keys that its clients
/// hold.
#[tokio::test]
async fn lease_under_replaced_pattern_keeps_priority() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = lease_policy(&site, &tokens);
    let older = Gateway::start(&policy).await;
    let lease = ClientLease::acquire_exclusive(&older, "account/7").await;
    let younger = Gateway::start(&route_policy(&site)).await;
    younger.wait_gauge(REFUSED, 1.0).await;
    older.rewrite(&policy.with("/leases/principals/0/keys", json!(["acc*"])));
    assert_eq!(older.reload(&[]).await.0, Some(0));
    let said =
        older.wait_line("that it goes on as it is", |line| line.field("why").contains("account/7")).await;
    assert!(said.field("why").contains("with-a-route"), "{said:?}");
    assert_eq!(younger.send(&pay()).await.status, 503);
    assert_eq!(lease.renew(&older).await.status, 200);
    assert_eq!(lease.release(&older).await.status, 204);
    younger.wait_gauge(REFUSED, 0.0).await;
    assert_eq!(younger.send(&pay()).await.status, 200);
    older.wait_gauge(REFUSED, 1.0).await;
}

/// A key whose route a reload unfences is not leased under another lock.
///
/// As long as a request of the earlier plan runs, other gateways rely on that plan. A lease under the new plan would
/// not exclude their requests.
#[tokio::test]
async fn unfenced_route_gets_no_conflicting_lease() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let after = tokens.policy(&site, "gw-1").with("/routes/0/fence", "none");
    assert_leases_as_published(site, tokens, after).await;
}

/// A reload with a file without leases is refused as a whole: leases are granted as before, and the route keeps its lock.
#[tokio::test]
async fn removed_lease_section_changes_nothing() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    gateway.rewrite(&site.policy("gw-1").with("/routes/0/fence", "none"));
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["difference"]["restart"]), (Some(78), &json!(["peer", "leases"])), "{report}");
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    assert_eq!(lease.renew(&gateway).await.status, 200);
    assert_eq!(gateway.send(&pay()).await.status, 423);
    assert_eq!(lease.release(&gateway).await.status, 204);
}

/// Asserts that leases follow the published plan. `after`: the plan without the route whose key has several permits.
async fn assert_leases_as_published(site: TestSite, tokens: LeaseTokens, after: TestPolicy) {
    let fence =
        json!({"key": "account/{path.account}", "wait": "5s", "permits": 3, "hold": {"mode": "strict"}});
    let with_permits = |name| tokens.policy(&site, name).with("/routes/0/fence", fence.clone());
    let other = Gateway::start(&with_permits("other")).await;
    let gateway = Gateway::start(&with_permits("gw-1")).await;
    let elsewhere = site.origin.hold_request(&other, TestRequest::post("/pay/7")).await;
    let of_before = site.origin.hold_request(&gateway, TestRequest::post("/pay/8")).await;
    gateway.rewrite(&after);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));

    let account = acquire_request(&json!({"keys": ["account/7"], "wait_ms": 500}));
    let refused = gateway.send(&account).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "config-mismatch"), "{refused:?}");
    assert_eq!(of_before.finish().await.status, 200);
    gateway.wait_gauge(REFUSED, 1.0).await;
    let refused = gateway.send(&account).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "config-mismatch"), "{refused:?}");
    assert_eq!(elsewhere.finish().await.status, 200);
    other.stop().await;
    gateway.wait_gauge(REFUSED, 0.0).await;
    ClientLease::acquire_exclusive(&gateway, "account/7").await;
}
