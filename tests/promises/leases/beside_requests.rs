//! Leases that wait for a key take no request its place in the queue of its route.

use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    leases::{ClientLease, LeaseTokens, acquire_request},
    site::TestSite,
};
use serde_json::json;

use super::pay;

#[tokio::test]
async fn a_request_waits_behind_any_number_of_leases_as_its_route_says() {
    let (site, tokens) = (TestSite::fresh().await, LeaseTokens::default());
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
