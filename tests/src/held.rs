//! A request that the service holds until the test lets it go. Other requests wait behind it, and a gateway or a guard
//! that dies loses it.

use crate::{
    client::{Answer, Ask},
    origin::{Latch, Origin, Record},
    process::{Pending, Process},
};

/// One request under way. Its execution goes on even if its sender dies.
pub struct Held {
    /// Its client, who waits for the answer.
    pub request: Pending,
    /// The request as it arrived.
    pub record: Record,
    pub latch: Latch,
}

impl Origin {
    /// Sends a request through a gateway or a guard, and holds it. Returns when it has arrived in full.
    ///
    /// # Panics
    /// If it does not arrive in time, or is answered before.
    pub async fn holds_one(&self, through: &Process, ask: Ask) -> Held {
        let (path, before) = (ask.target().to_owned(), self.count(ask.target()));
        let latch = self.holds(&path);
        let mut request = through.begin(ask);
        let record = tokio::select! {
            record = self.request(&path, before + 1) => record,
            answer = request.told() => panic!("{path} is answered and was not sent on: {answer:?}"),
        };
        Held { request, record, latch }
    }
}

impl Held {
    /// The service goes on to its answer.
    pub fn let_go(&self) {
        self.latch.let_go();
    }

    /// The same, and gives the answer.
    ///
    /// # Panics
    /// If there is no answer in time, or the connection broke.
    pub async fn finishes(self) -> Answer {
        self.let_go();
        self.answer().await
    }

    /// The answer that the client got.
    ///
    /// # Panics
    /// If there is none in time, or the connection broke.
    pub async fn answer(self) -> Answer {
        self.request.answer().await
    }
}
