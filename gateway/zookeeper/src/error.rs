//! Errors of a lock attempt.

use std::time::Duration;

use crate::peer_endpoint::HolderRoute;

/// The reason for which a lock was not granted. No request was sent under it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("another holder has the key")]
    Locked,
    /// The last holder left without recording that its requests are over; they may go on for this long.
    #[error("requests of the key's last holder may still run for {0:?}")]
    Delayed(Duration),
    /// The session ended, or another client removed the lock node: request the lock again.
    #[error("the request lost its place in the queue of the key")]
    Lost,
    /// Another gateway holds the key, and the request can be forwarded there.
    #[error("gateway {} keeps the key", .0.gateway)]
    Elsewhere(HolderRoute),
    /// Another gateway forwarded the request here, but this gateway does not hold the key.
    #[error("this gateway does not keep the key")]
    NotHolder,
    /// The other contenders request another permit count than this one, or only one side requests a permit.
    #[error("other requests ask for another number of permits of the key")]
    PermitsDiffer,
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    /// The node at the path of the lock is no lock.
    #[error("{0}")]
    PlaceTaken(&'static str),
    #[error("{0}")]
    Service(String),
}
