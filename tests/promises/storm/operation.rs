//! The payments of the clients, and what the service does with each.

use std::time::Duration;

use fencegate_tests::{
    client::TestRequest,
    effort::effort,
    history::ATTEMPT,
    memory::SeededRng,
    origin::{OriginAction, OriginReply},
};

/// The number of operations.
pub(super) fn operations() -> usize {
    effort(400, 2000)
}

const ACCOUNTS: usize = 50;
/// The largest number of attempts of one operation. The last attempt comes when all processes run.
pub(super) const ATTEMPTS: usize = 5;
/// The time for which the service hangs: shorter than the guard's `max_execution`, and longer than any client waits.
const HANGS: Duration = Duration::from_millis(750);

/// The number of an operation, from which its account and its amount are derived.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationNumber(pub(super) usize);

impl OperationNumber {
    pub(super) fn cents(self) -> u64 {
        1 + self.0 as u64 * 7 % 100
    }

    pub(super) fn account(self) -> usize {
        self.0 % ACCOUNTS
    }

    /// A path for each operation, so that the origin can be told how to answer it.
    pub(super) fn target(self) -> String {
        format!("/pay/{}?op={}", self.account(), self.0)
    }

    pub(super) fn attempt(self, n: usize) -> String {
        format!("{}/{n}", self.0)
    }

    pub(super) fn attempt_request(self, attempt: usize) -> TestRequest {
        TestRequest::post(&self.target())
            .field("Idempotency-Key", &format!("\"op-{}\"", self.0))
            .field(ATTEMPT, &self.attempt(attempt))
            .body(self.cents().to_string())
    }

    /// The answers of the origin to this operation, one for each execution, with a new receipt each time.
    pub(super) fn planned_answers(self, dice: &SeededRng) -> Vec<OriginAction> {
        let receipt =
            |time: usize| OriginReply::with_body(format!("receipt {} of operation {}", time, self.0));
        let first = match dice.below(100) {
            0..5 => OriginAction::Reset,
            5..8 => OriginAction::CloseInHead,
            8..11 => OriginAction::CloseInBody(receipt(1)),
            11..14 => OriginAction::now(receipt(1).status(503)),
            14..17 => OriginAction::now(receipt(1).status(402)),
            17..19 => OriginAction::Answer(HANGS, receipt(1)),
            _ => OriginAction::Answer(Duration::from_millis(dice.below(12)), receipt(1)),
        };
        [first].into_iter().chain((2..=ATTEMPTS).map(|time| OriginAction::now(receipt(time)))).collect()
    }
}
