//! The service behind a proxy under test: an origin that responds with scripted bytes.

use std::net::SocketAddr;

use crate::origin::{Origin, RequestRecord, ScriptedResponse};

/// A running service. Dropping it ends it.
pub struct ScriptedService {
    pub address: SocketAddr,
    /// A second address of this service, which gateways take for another service.
    pub other: SocketAddr,
    origin: Origin,
}

impl ScriptedService {
    /// Starts a service.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start() -> Self {
        let origin = Origin::start();
        origin.set_responses([]);
        let [address, other] = ["service", "other"].map(|name| origin.open_listener(name));
        Self { address, other, origin }
    }

    /// Sets the responses to the next requests, in their order. Every later request gets a 200.
    pub fn set_responses(&self, responses: impl IntoIterator<Item = ScriptedResponse>) {
        self.origin.set_responses(responses);
    }

    /// The number of requests that have begun so far.
    pub fn request_count(&self) -> usize {
        self.origin.log().records.len()
    }

    /// All requests after the first `before` ones, as far as they arrived.
    pub fn requests_since(&self, before: usize) -> Vec<RequestRecord> {
        self.origin.log().records[before..].to_vec()
    }

    /// Waits until this number of requests have begun.
    pub async fn wait_requests(&self, count: usize) {
        let begun = |log: &crate::origin::OriginLog| (log.records.len() >= count).then_some(());
        self.origin.wait_for("requests at the service", begun).await;
    }
}
