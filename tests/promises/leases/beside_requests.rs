//! Leases that wait for a key take no place in the queue of a route, so its limit counts requests only.

use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    leases::{ClientLease, LeaseTokens, acquire_request},
    site::TestSite,
};
use serde_json::json;

use super::pay;

/// Waiting leases take no place in the `queue` of a route: its limit counts requests only.
#[tokio::test]
async fn waiting_leases_leave_route_queue_free() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens
        .policy(&site, "gw-1")
        .with("/routes/0/fence/hold", json!({"mode": "strict"}))
        .with("/routes/0/fence/queue", 1);
    let gateway = Gateway::start(&policy).await;
    let holder = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let waits = acquire_request(&json!({"keys": ["account/7"]})).field("prefer", "respond-async");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(ClientLease::from_response(&gateway.send(&waits).await));
    }
    let tree = site.tree().await;
    let request = gateway.begin(TestRequest::post("/pay/7").field("prefer", "wait=20"));
    tree.wait_locks("the request waits with the leases", |locks| locks.len() == 5).await;
    // The route of this request allows one waiter.
    let full = gateway.send(&pay()).await;
    assert_eq!((full.status, full.reason().as_str()), (429, "queue-full"));
    for lease in waiting.iter().chain([&holder]) {
        assert_eq!(lease.release(&gateway).await.status, 204);
    }
    assert_eq!(request.answer().await.status, 200);
}
