//! One request of a client, as it is sent and with the facts that the judge needs.

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
    /// The request is about an account. Questions about leases are not.
    pub judged: bool,
    pub ask: TestRequest,
}

const WORKS: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(20);

/// The time for which the service works on a request.
pub(super) fn work(dice: &SeededRng) -> Duration {
    dice.within(&WORKS)
}

/// The request with its name, its operation if it has one, and the time for which the service works on it.
pub(super) fn stamp(ask: TestRequest, id: &str, operation: Option<&str>, work: Duration) -> TestRequest {
    let ask = ask.field(ATTEMPT, id).field(WORK, &work.as_millis().to_string());
    match operation {
        Some(operation) => ask.field("Idempotency-Key", operation),
        None => ask,
    }
}
