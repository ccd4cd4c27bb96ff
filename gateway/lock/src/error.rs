//! Why there is no lock.

use std::time::Duration;

use crate::peer_endpoint::HolderRoute;

/// Why a lock was not granted. No request was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("another one holds it")]
    Locked,
    /// The last holder left without saying that its requests are over; they may go on for this long.
    #[error("the requests of its last holder may go on for {0:?}")]
    Delayed(Duration),
    /// The session ended, or a stranger removed our node: ask again.
    #[error("the place in the queue was lost")]
    Lost,
    /// Another gateway keeps the key, and the request can be sent there instead.
    #[error("gateway {} keeps it", .0.gateway)]
    Elsewhere(HolderRoute),
    /// Another gateway has sent the request here, but this gateway does not keep the key.
    #[error("it is not kept here")]
    NotHolder,
    /// The other contenders ask for another number of permits than this one, or only one side asks for a permit.
    #[error("others ask for another number of permits of it")]
    PermitsDiffer,
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    #[error("{0}")]
    Service(String),
}
