//! What a client does that holds leases: it asks for one, pays under it several times, gives it back, and asks again.

use serde_json::json;

use super::payment::{Request, work, written};
use crate::{
    client::{Answer, Ask},
    leases::{Lease, asking},
    memory::dice::Dice,
};

/// The leases of one client, one after the other.
#[derive(Default)]
pub(super) struct LeaseWork {
    held: Option<Held>,
    /// The path of the account whose lease was asked for, while there is no answer.
    asked: Option<String>,
}

struct Held {
    lease: Lease,
    path: String,
    /// Payments that are still to be made under it.
    left: usize,
}

const PAYMENTS: usize = 4;

/// Longer than a few payments, and shorter than a session.
const TTL_MS: u64 = 1500;

const WAIT_MS: u64 = 8000;

/// Asks for the key of the account of this path.
pub(super) fn wanted(path: &str) -> Ask {
    asking(&json!({"keys": [key(path)], "ttl_ms": TTL_MS, "wait_ms": WAIT_MS}))
}

fn key(path: &str) -> String {
    path.replace("/pay/", "account/")
}

impl LeaseWork {
    /// `path`: of the account that is next where a lease has to be asked for.
    pub(super) fn next(&mut self, id: &str, path: String, dice: &Dice) -> Request {
        let Some(held) = &mut self.held else {
            let ask = wanted(&path);
            self.asked = Some(path.clone());
            return about(ask, id, path);
        };
        if held.left == 0 {
            let (lease, path) = (held.lease.clone(), held.path.clone());
            self.held = None;
            let given_back =
                Ask::with_method("DELETE", &format!("/.fencegate/v1/leases/{}", lease.reference));
            return about(lease.under(given_back), id, path);
        }
        held.left -= 1;
        let pays = written(Ask::post(&held.path), id, None, work(dice));
        Request { judged: true, writes: true, ..about(held.lease.under(pays), id, held.path.clone()) }
    }

    /// A lease is of no use any more under which something was not done.
    pub(super) fn hear(&mut self, answer: Option<&Answer>) {
        match self.asked.take() {
            Some(path) => {
                let granted = answer.filter(|answer| answer.status == 201);
                self.held =
                    granted.map(|answer| Held { lease: Lease::granted(answer), path, left: PAYMENTS });
            }
            None if answer.is_some_and(|answer| answer.status == 200) => {}
            None => self.held = None,
        }
    }
}

/// A question about leases, which is no execution.
fn about(ask: Ask, id: &str, path: String) -> Request {
    Request { id: id.to_owned(), operation: None, path, writes: false, judged: false, ask }
}
