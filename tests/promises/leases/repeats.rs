//! A request for a lease that is repeated under its name (`Idempotency-Key`) has the lease of the first request, also where the
//! first request waits, or its client goes away meanwhile.

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, LogLine},
    leases::{ClientLease, LeaseTokens, acquire_request, json_body},
    site::TestSite,
};
use serde_json::{Value, json};

use super::{start_one, wait_lease_over};

fn named(body: &Value) -> TestRequest {
    acquire_request(body).field("idempotency-key", "run-7")
}

/// True for the line of the access log about a request whose client has gone.
fn is_hang_up(line: &LogLine) -> bool {
    serde_json::from_str::<Value>(&line.text()).is_ok_and(|line| line["status"] == 499)
}

/// A repeat whose wait is shorter than that of the lease gets 409 `in-progress` with `Retry-After`. A later repeat gets
/// the lease.
#[tokio::test]
async fn repeat_of_waiting_lease_is_in_progress() {
    let (_site, _tokens, gateway) = start_one().await;
    let holder = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    let body = json!({"keys": ["job/1"]});
    let queued = gateway.send(&named(&body).field("prefer", "respond-async")).await;
    assert_eq!(queued.status, 202);
    let queued = ClientLease::from_response(&queued);
    let early = gateway.send(&named(&body)).await;
    assert_eq!((early.status, early.reason().as_str()), (409, "in-progress"));
    assert_eq!(early.field("retry-after"), Some("1"));
    assert_eq!(holder.release(&gateway).await.status, 204);
    let repeat = gateway.send(&named(&body)).await;
    assert_eq!(repeat.status, 201, "{repeat:?}");
    assert_eq!(ClientLease::from_response(&repeat).id, queued.id);
}

/// A client that has learned the id of a lease from the answer to a repeat keeps the lease when the first request ends.
#[tokio::test]
async fn lease_told_to_repeat_outlives_first_client() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1").with("/log", json!({"access": "stdout"}));
    let gateway = Gateway::start(&policy).await;
    let holder = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    let body = json!({"keys": ["job/1"], "wait_ms": 15_000});
    let first = gateway.begin(named(&body));
    site.tree().await.wait_locks("it waits", |locks| locks.len() == 2).await;
    let repeat = gateway.send(&named(&body).field("prefer", "respond-async")).await;
    assert_eq!(repeat.status, 202, "{repeat:?}");
    let lease = ClientLease::from_response(&repeat);
    first.hang_up();
    gateway.wait_line("that the first client has gone", is_hang_up).await;
    // The revision is read before the grant: a watch with the revision of the grant would wait for a later change.
    let seen = json_body(&lease.get(&gateway).await)["revision"].clone();
    assert_eq!(holder.release(&gateway).await.status, 204);
    let path = format!("/.fencegate/v1/leases/{}?watch=10&seen={seen}", lease.reference);
    let state = async {
        loop {
            let told = json_body(&gateway.send(&lease.with_lease(TestRequest::get(&path))).await);
            if told["state"] != "waiting" {
                return told;
            }
        }
    };
    let told = wait_until("the grant", state, || gateway.log()).await;
    assert_eq!(told["state"], "held", "{told}");
    assert_eq!(lease.release(&gateway).await.status, 204);
    assert_eq!(wait_lease_over(&lease, &gateway).await, "released");
}
