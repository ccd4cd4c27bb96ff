//! The work of a client with leases: it acquires a lease, pays under it several times, releases it, and acquires
//! again.

use serde_json::json;

use super::payment::{PaymentRequest, stamp, work};
use crate::{
    client::{ClientResponse, TestRequest},
    leases::{ClientLease, acquire_request},
    memory::rng::SeededRng,
};

/// The work of one client, lease by lease.
#[derive(Default)]
pub(super) struct LeaseWorkload {
    held: Option<HeldLease>,
    /// The path of the account whose lease was requested; `None` when the response has arrived.
    asked: Option<String>,
}

struct HeldLease {
    lease: ClientLease,
    path: String,
    /// The number of payments that are still to be made under the lease.
    left: usize,
}

const PAYMENTS: usize = 4;

/// Longer than a few payments take, and shorter than a session.
const TTL_MS: u64 = 1500;

const WAIT_MS: u64 = 8000;

/// The request for a lease of the key of this path's account.
pub(super) fn lease_request(path: &str) -> TestRequest {
    acquire_request(&json!({"keys": [key(path)], "ttl_ms": TTL_MS, "wait_ms": WAIT_MS}))
}

fn key(path: &str) -> String {
    path.replace("/pay/", "account/")
}

impl LeaseWorkload {
    /// The next request of the client. `path`: the account of the next lease, if one has to be requested.
    pub(super) fn next(&mut self, id: &str, path: String, dice: &SeededRng) -> PaymentRequest {
        let Some(held) = &mut self.held else {
            let ask = lease_request(&path);
            self.asked = Some(path.clone());
            return lease_query(ask, id, path);
        };
        if held.left == 0 {
            let lease = held.lease.clone();
            let path = held.path.clone();
            self.held = None;
            let given_back =
                TestRequest::with_method("DELETE", &format!("/.fencegate/v1/leases/{}", lease.reference));
            return lease_query(lease.with_lease(given_back), id, path);
        }
        held.left -= 1;
        let pays = stamp(TestRequest::post(&held.path), id, None, work(dice));
        PaymentRequest {
            judged: true,
            writes: true,
            ..lease_query(held.lease.with_lease(pays), id, held.path.clone())
        }
    }

    /// Records the response to the last request. A lease under which a payment failed is not used any more.
    pub(super) fn record_answer(&mut self, answer: Option<&ClientResponse>) {
        match self.asked.take() {
            Some(path) => {
                let granted = answer.filter(|answer| answer.status == 201);
                self.held = granted.map(|answer| HeldLease {
                    lease: ClientLease::from_response(answer),
                    path,
                    left: PAYMENTS,
                });
            }
            None if answer.is_some_and(|answer| answer.status == 200) => {}
            None => self.held = None,
        }
    }
}

/// A request about a lease, which is not an execution.
fn lease_query(ask: TestRequest, id: &str, path: String) -> PaymentRequest {
    PaymentRequest { id: id.to_owned(), operation: None, path, writes: false, judged: false, ask }
}
