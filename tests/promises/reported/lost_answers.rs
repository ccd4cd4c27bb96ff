//! A client whose grant was lost on its way has it again, and does not wait for itself.

use std::time::{Duration, Instant};

use fencegate_tests::{
    client::{RawClient, TestRequest},
    gateway::Gateway,
    leases::{CLIENT, ClientLease, LeaseTokens, OTHER, acquire_request, json_body},
    site::TestSite,
};
use serde_json::json;

fn named(key: &str, name: &str) -> TestRequest {
    acquire_request(&json!({ "keys": [key] })).field("idempotency-key", name)
}

/// Reported as samuel/go-zookeeper#229, CURATOR-45 and CURATOR-79: the server had granted a lock whose answer was lost,
/// and the client waited behind its own lock. This test covers grants that the client has not learned of, however the
/// answer was lost.
#[tokio::test]
async fn lost_grant_is_had_again_by_its_name() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let begun = Instant::now();
    for (number, reset) in [true, false, false].into_iter().enumerate() {
        let key = format!("job/{number}");
        let name = format!("run-{number}");
        let body = json!({ "keys": [key] }).to_string();
        let head = format!(
            "POST /.fencegate/v1/leases HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {CLIENT}\r\nIdempotency-Key: \"{name}\"\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = RawClient::connect(gateway.public).await.expect("it listens");
        client.send(head + &body).await.expect("sent");
        // The lease is granted, and the client hangs up before it reads the answer's body.
        let granted = client.read_head().await.expect("a head");
        assert_eq!(granted.word(1), "201", "{granted:?}");
        if reset {
            client.reset().expect("our own socket");
        } else {
            drop(client);
        }
        // A request without the name waits behind the lost grant.
        assert_eq!(gateway.send(&acquire_request(&json!({ "keys": [key] }))).await.status, 423);
        let again = gateway.send(&named(&key, &name)).await;
        assert_eq!(again.status, 201, "{again:?}");
        let lease = ClientLease::from_response(&again);
        assert_eq!(lease.release(&gateway).await.status, 204, "it has the id that gives it back");
        let late = gateway.send(&named(&key, &name)).await;
        assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"), "one name, one lease");
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "nobody waited for a `ttl`");
}

/// A name stands for one request of one principal. A request without a grant does not use its name up.
#[tokio::test]
async fn name_of_grant_is_one_request() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let first = gateway.send(&named("job/1", "a")).await;
    let again = gateway.send(&named("job/1", "a")).await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(json_body(&first)["lease"], json_body(&again)["lease"]);
    assert_eq!(json_body(&first)["token"], json_body(&again)["token"]);
    let other = gateway.send(&named("job/2", "a")).await;
    assert_eq!((other.status, other.reason().as_str()), (422, "idempotency-mismatch"));
    let theirs = named("other/1", "a").field("authorization", &format!("Bearer {OTHER}"));
    assert_ne!(gateway.send(&theirs).await.reason(), "idempotency-mismatch", "names are of one principal");
    // This request got no grant, so its name may be used again.
    assert_eq!(gateway.send(&named("job/1", "b")).await.status, 423);
    assert_eq!(ClientLease::from_response(&first).release(&gateway).await.status, 204);
    assert_eq!(gateway.send(&named("job/1", "b")).await.status, 201);
    for bad in ["", "a b", "\"\""] {
        let refused = gateway.send(&named("job/3", bad)).await;
        assert_eq!((refused.status, refused.reason().as_str()), (400, "malformed"), "{bad:?}");
    }
}
