//! The verified identity of the client of a request.

use std::sync::Arc;

use fencegate_policies::{client_name::ClientName, key::ClaimValues};
use fencegate_ticket::AccessToken;

/// The identity of a client, as far as its connection and its bearer token prove it.
#[derive(Debug, Default)]
pub struct VerifiedClientIdentity {
    /// The name in the certificate of the client; `None` if the policy names no kind of name that identifies
    /// clients.
    pub client_name: Option<ClientName>,
    /// The token of the request, where its route reads one.
    pub token: Option<Arc<AccessToken>>,
}

impl VerifiedClientIdentity {
    /// The claims of the token.
    pub fn claims(&self) -> Option<&ClaimValues> {
        self.token.as_ref().map(|token| &token.claims)
    }
}
