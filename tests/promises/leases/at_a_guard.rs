//! A guard compares the tokens of requests under leases: after any request of the new holder, also one that only
//! reads, it admits nothing of the previous holder.

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::{StampedRequest, assert_refused},
    guarded::GuardedSite,
    leases::{ClientLease, LeaseTokens},
};
use serde_json::json;

use super::pay;

/// After a read under the lease of the new holder, the guard refuses a late write of the previous holder as stale.
#[tokio::test]
async fn guard_refuses_late_write_after_read() {
    let guarded = GuardedSite::fresh().await;
    let tokens = LeaseTokens::default();
    let guard = guarded.guard().await;
    let read = json!({
        "name": "look", "upstream": "ledger", "match": {"methods": ["GET"], "path": "/pay/{account}"},
        "fence": {"key": "account/{path.account}", "mode": "shared", "lease": "optional"},
    });
    let policy = tokens.add_to(guarded.policy("gw-1", &[guard.public])).with("/routes/1", read);
    let gateway = Gateway::start(&policy).await;

    let first = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let written = gateway.send(&first.with_lease(pay())).await;
    assert_eq!((written.status, written.outcome()), (200, Some(FencingOutcome::Done)));
    assert_eq!(first.release(&gateway).await.status, 204);
    // This request looks as if it had been sent before the release and had been delayed.
    let late = StampedRequest::after("account/7", written.token().expect("a token"));
    let second = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let looked = gateway.send(&second.with_lease(TestRequest::get("/pay/7"))).await;
    assert_eq!((looked.status, looked.outcome()), (200, Some(FencingOutcome::Done)), "{looked:?}");
    assert!(looked.token() > Some(late.token()), "{looked:?}");

    let before = guarded.site.origin.count("/pay/7");
    let refused = guard.send(&late.apply_to(pay())).await;
    assert_refused(&refused, "stale");
    assert_eq!(guarded.site.origin.count("/pay/7"), before, "it was let in");
    assert_eq!(gateway.send(&second.with_lease(pay())).await.status, 200);
}
