//! One request of a client, with the facts that the judge needs.

use std::{ops::Range, time::Duration};

use crate::{
    client::TestRequest,
    memory::rng::SeededRng,
    origin::{ATTEMPT, WORK},
};

/// A request to send, with the facts that the judge needs.
pub struct PaymentRequest {
    pub id: String,
    pub operation: Option<String>,
    pub path: String,
    pub writes: bool,
    /// True for a request about an account, and false for one about a lease.
    pub judged: bool,
    pub ask: TestRequest,
}

const WORKS: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(20);

/// A random time for which the service works on a request.
pub(super) fn work(dice: &SeededRng) -> Duration {
    dice.within(&WORKS)
}

/// Adds to a request its id, its operation if it has one, and the time for which the service works on it.
pub(super) fn stamp(ask: TestRequest, id: &str, operation: Option<&str>, work: Duration) -> TestRequest {
    let ask = ask.field(ATTEMPT, id).field(WORK, &work.as_millis().to_string());
    match operation {
        Some(operation) => ask.field("Idempotency-Key", operation),
        None => ask,
    }
}
