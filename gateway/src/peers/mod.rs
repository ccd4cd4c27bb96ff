//! Gateways send requests on to each other: who keeps a key answers for it, instead of handing it over each time.

mod courier;
mod link;
mod ours;
mod pass;
mod told;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::{
    courier::{Carried, Courier},
    ours::{BadPeerTls, NAME, Ours},
    pass::{BadPass, Nonce, Pass, Proof},
    told::Told,
};
pub(crate) use self::{link::Idle, told::announce_trailers};

/// What a gateway's member node says of its listener for other gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// `host:port`.
    pub address: String,
    pub pass: Pass,
}

/// Where another gateway is, and what it asks for to listen to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub gateway: Arc<str>,
    /// `host:port`.
    pub address: Arc<str>,
    pub pass: Pass,
}

/// What another gateway says of a request that it has sent on to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// Its name.
    pub from: Arc<str>,
    /// The key that it has derived.
    pub key: String,
    /// Until when it would wait, counted from when the head was here.
    pub until: Instant,
}
