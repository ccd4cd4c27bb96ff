//! A request that the service holds until the test lets it go. Other requests wait behind it, and a gateway or a guard
//! that dies loses it.

use crate::{
    client::{ClientResponse, TestRequest},
    origin::{Latch, Origin, RequestRecord},
    process::{PendingRequest, TestProcess},
};

/// One request in flight. Its execution goes on even if its sender dies.
pub struct HeldRequest {
    /// Its client, which waits for the answer.
    pub request: PendingRequest,
    /// The request as it arrived.
    pub record: RequestRecord,
    pub latch: Latch,
}

impl Origin {
    /// Sends a request through a gateway or a guard, and holds it. Returns when it has arrived in full.
    ///
    /// # Panics
    /// If it does not arrive in time, or is answered before.
    pub async fn hold_request(&self, through: &TestProcess, ask: TestRequest) -> HeldRequest {
        let path = ask.target().to_owned();
        let before = self.count(ask.target());
        let latch = self.hold(&path);
        let mut request = through.begin(ask);
        let record = tokio::select! {
            record = self.wait_for_request(&path, before + 1) => record,
            answer = request.take_answer() => panic!("{path} is answered and was not sent on: {answer:?}"),
        };
        HeldRequest { request, record, latch }
    }
}

impl HeldRequest {
    /// The service goes on to its answer.
    pub fn release(&self) {
        self.latch.release();
    }

    /// The same, and gives the answer.
    ///
    /// # Panics
    /// If there is no answer in time, or the connection broke.
    pub async fn finish(self) -> ClientResponse {
        self.release();
        self.answer().await
    }

    /// The answer that the client got.
    ///
    /// # Panics
    /// If there is none in time, or the connection broke.
    pub async fn answer(self) -> ClientResponse {
        self.request.answer().await
    }
}
