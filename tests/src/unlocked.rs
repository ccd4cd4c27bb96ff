//! A request that passed without a lock: its route only observed, and the request named no account.

use serde_json::json;

use crate::{
    client::Ask,
    gateway::Gateway,
    origin::{Act, Latch, Reply},
    policy::Policy,
    process::Pending,
    site::Site,
};

/// The request is held at its upstream, in the middle of the answer.
pub struct Unlocked {
    pub gateway: Gateway,
    /// The same policy, with the route that observes no longer: its key is `account/{header.x-account}`.
    pub fencing: Policy,
    pub request: Pending,
    pub latch: Latch,
}

impl Site {
    /// Starts a gateway of this policy, whose first route only observes at `/pay`, and sends a request without an account.
    /// Returns when the request has arrived in full.
    ///
    /// # Panics
    /// If the request does not arrive, or has a token.
    pub async fn passes_unlocked(&self, policy: Policy) -> Unlocked {
        let fencing = policy
            .with("/routes/0/match/path", "/pay")
            .with("/routes/0/fence/key", "account/{header.x-account}");
        let gateway =
            Gateway::start(&fencing.clone().with("/routes/0/fence/enforce", json!("observe"))).await;
        let latch = Latch::default();
        self.origin.script("/pay", [Act::HoldInBody(latch.clone(), Reply::with_body(vec![7; 1 << 20]))]);
        let request = gateway.begin(Ask::post("/pay"));
        assert_eq!(self.origin.request("/pay", 1).await.token(), None, "it names no account");
        Unlocked { gateway, fencing, request, latch }
    }
}
