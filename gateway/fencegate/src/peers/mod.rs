//! Gateways send requests on to each other: who keeps a key answers for it, instead of handing it over each time.

mod courier;
mod link;
mod ours;
mod told;

use std::sync::Arc;

use tokio::time::Instant;

pub use self::{
    courier::{Carried, Courier},
    ours::{BadPeerTls, NAME, Ours},
    told::Told,
};
pub(crate) use self::{link::Idle, told::announce_trailers};

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
