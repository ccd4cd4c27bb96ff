//! The errors of a client.

use crate::manager::lock_manager::AcquireError;

/// The reason for which no lock was granted. Nothing is held, and no lock node is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockClientError {
    /// The options are invalid; a retry does not help.
    #[error("{0}")]
    Options(String),
    /// The keys cannot be requested like this; a retry does not help. A key is not printable ASCII, has spaces or is
    /// too long; there is no key, or more than 64; or other callers use the key with another permit count.
    #[error("{0}")]
    Key(String),
    /// Another holder has the key, and the wait is over.
    #[error("another holder has the key, and the wait for it is over")]
    Locked,
    /// The paths of a session's lock nodes have reached their bound of 512 KiB. A client with more sessions can hold
    /// more locks.
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    /// There is no session, or no reply came in time: retry later.
    #[error("the lock service is not available: {0}")]
    Unavailable(String),
    /// The installation does not exist yet: see
    /// [`ConnectOptions::with_installation_init`](super::ConnectOptions::with_installation_init).
    #[error("{0}")]
    NotInitialised(String),
    /// ZooKeeper was wiped or restored, so that new tokens would be below old ones. An operator has to start the next
    /// era.
    #[error("{0}")]
    RolledBack(String),
}

impl From<AcquireError> for LockClientError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Locked | AcquireError::QueueFull => Self::Locked,
            AcquireError::KeyLimit(which) => Self::KeyLimit(which),
            AcquireError::NotInitialised(reason) => Self::NotInitialised(reason),
            AcquireError::RolledBack(reason) => Self::RolledBack(reason),
            AcquireError::Service(reason) => Self::Unavailable(reason),
            // The client requests neither to be forwarded to another gateway nor a report of a delay, so these do not
            // occur.
            AcquireError::Elsewhere(_) | AcquireError::NotHolder | AcquireError::Delayed(_) => {
                Self::Unavailable(error.to_string())
            }
            AcquireError::PermitsDiffer | AcquireError::PlaceTaken(_) => Self::Key(error.to_string()),
        }
    }
}
