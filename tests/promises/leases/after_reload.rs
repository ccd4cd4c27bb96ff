//! After a reload no lease is held while requests under the earlier plan run for its key, and a waiting lease is not
//! granted beside a gateway that locks the key otherwise.

use fencegate_tests::{
    gateway::Gateway,
    leases::{ClientLease, LeaseTokens, acquire_request},
    site::TestSite,
    unlocked_request::UnlockedRequest,
};
use serde_json::json;

use super::{
    unlike_plans::{REFUSED, lease_policy, route_policy},
    wait_lease_over,
};

/// While a request runs that passed without a lock before the reload, no lease of its key is granted.
///
/// The waiting lease ends as `locked`, because it would otherwise be held beside that request.
#[tokio::test]
async fn unlocked_request_blocks_lease_after_reload() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let UnlockedRequest { gateway, fencing, request: unlocked, latch } =
        site.hold_unlocked_request(tokens.grant(site.policy("gw-1"))).await;
    let account = json!({"keys": ["account/7"]});
    let holder = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let waits = gateway.send(&acquire_request(&account).field("prefer", "respond-async")).await;
    let waiting = ClientLease::from_response(&waits);

    gateway.rewrite(&fencing);
    assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    assert_eq!(holder.release(&gateway).await.status, 204);
    assert_eq!(
        wait_lease_over(&waiting, &gateway).await,
        "locked",
        "it has waited, and would be held beside it"
    );
    let refused = gateway.send(&acquire_request(&account)).await;
    assert_eq!((refused.status, refused.reason().as_str()), (423, "locked"), "{refused:?}");
    latch.release();
    assert_eq!(unlocked.answer().await.status, 200);
    ClientLease::acquire_exclusive(&gateway, "account/7").await;
}

/// A waiting lease is not granted where an older gateway locks the key otherwise: it ends as `config-mismatch`.
#[tokio::test]
async fn waiting_lease_ends_on_config_mismatch() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let _older = Gateway::start(&route_policy(&site)).await;
    let policy = lease_policy(&site, &tokens);
    let younger = Gateway::start(&policy.clone().with("/allow_mixed", true)).await;
    let holder = ClientLease::acquire_exclusive(&younger, "account/7").await;
    let waits = acquire_request(&json!({"keys": ["account/7"]})).field("prefer", "respond-async");
    let waiting = ClientLease::from_response(&younger.send(&waits).await);
    younger.rewrite(&policy);
    assert_eq!(younger.reload(&[]).await.1["result"], "applied");
    younger.wait_gauge(REFUSED, 1.0).await;
    assert_eq!(holder.release(&younger).await.status, 204);
    assert_eq!(wait_lease_over(&waiting, &younger).await, "config-mismatch");
}
