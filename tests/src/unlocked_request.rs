//! A request that passed without a lock, because its route only observed and the request named no account.

use serde_json::json;

use crate::{
    client::TestRequest,
    gateway::Gateway,
    origin::{Latch, OriginAction, OriginReply},
    policy::TestPolicy,
    process::PendingRequest,
    site::TestSite,
};

/// An unlocked request, held at its upstream in the middle of the answer.
pub struct UnlockedRequest {
    pub gateway: Gateway,
    /// The gateway's policy with a route that enforces instead of observing: its key is
    /// `account/{header.x-account}`.
    pub fencing: TestPolicy,
    pub request: PendingRequest,
    pub latch: Latch,
}

impl TestSite {
    /// Starts a gateway whose first route only observes `/pay`, and sends a request without an account. Returns when
    /// the request has arrived in full.
    ///
    /// # Panics
    /// If the request does not arrive, or has a token.
    pub async fn hold_unlocked_request(&self, policy: TestPolicy) -> UnlockedRequest {
        let fencing = policy
            .with("/routes/0/match/path", "/pay")
            .with("/routes/0/fence/key", "account/{header.x-account}");
        let gateway =
            Gateway::start(&fencing.clone().with("/routes/0/fence/enforce", json!("observe"))).await;
        let latch = Latch::default();
        self.origin.script(
            "/pay",
            [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; 1 << 20]))],
        );
        let request = gateway.begin(TestRequest::post("/pay"));
        assert_eq!(self.origin.wait_for_request("/pay", 1).await.token(), None, "it names no account");
        UnlockedRequest { gateway, fencing, request, latch }
    }
}
