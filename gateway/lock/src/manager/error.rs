//! Errors of a lock request.

use std::time::Duration;

use fencegate_zookeeper::{error::GrantError, peer_endpoint::HolderRoute};

/// The reason for which no tenure was granted. Nothing was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    #[error("another holder has the key, and the wait for it is over")]
    Locked,
    #[error("too many requests wait for this key")]
    QueueFull,
    /// The last holder left without recording that its requests are over. The delay runs whether or not a request
    /// waits.
    #[error("requests of the key's last holder may still run for {0:?}")]
    Delayed(Duration),
    /// Another gateway holds the key, and the request can be forwarded there.
    #[error("gateway {} keeps the key", .0.gateway)]
    Elsewhere(HolderRoute),
    /// Another gateway forwarded the request here, but this one does not hold the key.
    #[error("this gateway does not keep the key")]
    NotHolder,
    /// The holders of the key, or contenders ahead, request another permit count.
    #[error("other requests ask for another number of permits of the key")]
    PermitsDiffer,
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    /// The node at the path of the lock is no lock, so nobody ever gets the lock.
    #[error("{0}")]
    PlaceTaken(&'static str),
    #[error("the lock service is not available: {0}")]
    Service(String),
    #[error("{0}")]
    NotInitialised(String),
    #[error("{0}")]
    RolledBack(String),
}

impl AcquireError {
    /// Whether the reason is another holder. Otherwise it is unknown whether there is one.
    pub fn is_held_elsewhere(&self) -> bool {
        !matches!(
            self,
            Self::KeyLimit(_)
                | Self::PlaceTaken(_)
                | Self::Service(_)
                | Self::NotInitialised(_)
                | Self::RolledBack(_)
        )
    }
}

impl From<GrantError> for AcquireError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Locked => Self::Locked,
            GrantError::Delayed(rest) => Self::Delayed(rest),
            GrantError::Elsewhere(route) => Self::Elsewhere(route),
            GrantError::NotHolder => Self::NotHolder,
            GrantError::PermitsDiffer => Self::PermitsDiffer,
            GrantError::KeyLimit(which) => Self::KeyLimit(which),
            GrantError::PlaceTaken(what) => Self::PlaceTaken(what),
            GrantError::Lost => Self::Service("the session ended".into()),
            GrantError::Service(reason) => Self::Service(reason),
        }
    }
}
