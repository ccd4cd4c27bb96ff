//! A request that the service holds until the test releases it. Other requests wait behind it, and a gateway or
//! guard that dies loses it.

use crate::{
    client::{ClientResponse, TestRequest},
    origin::{Latch, Origin, RequestRecord},
    process::{PendingRequest, TestProcess},
};

/// One request in flight. Its execution goes on even if its sender dies.
pub struct HeldRequest {
    /// The request as its client sees it: the response is pending.
    pub request: PendingRequest,
    /// The request as it arrived at the service.
    pub record: RequestRecord,
    pub latch: Latch,
}

impl Origin {
    /// Sends a request through a gateway or guard, and holds it at the service. Returns when the request has arrived in
    /// full.
    ///
    /// # Panics
    /// If the request does not arrive in time, or is answered before.
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
    /// Lets the service respond.
    pub fn release(&self) {
        self.latch.release();
    }

    /// Lets the service respond, and returns the response that the client got.
    ///
    /// # Panics
    /// If there is no response in time, or the connection broke.
    pub async fn finish(self) -> ClientResponse {
        self.release();
        self.answer().await
    }

    /// Waits for the response that the client gets.
    ///
    /// # Panics
    /// If there is no response in time, or the connection broke.
    pub async fn answer(self) -> ClientResponse {
        self.request.answer().await
    }
}
