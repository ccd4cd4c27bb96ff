//! Where a dispatch was sent.

use serde::{Deserialize, Serialize};

/// The target of a dispatch: the endpoint or address to which it was sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DispatchTarget {
    /// The endpoint, as the policy writes it.
    pub endpoint: String,
    /// One address of the endpoint, if its name may have several. `None` means all addresses of the endpoint.
    #[serde(default)]
    pub address: Option<String>,
}

impl DispatchTarget {
    /// A whole endpoint.
    pub fn whole_endpoint_target(endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), address: None }
    }
}

impl std::fmt::Display for DispatchTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} ({address})", self.endpoint),
            None => f.write_str(&self.endpoint),
        }
    }
}
