//! The errors of a client.

use crate::manager::lock_manager::AcquireError;

/// Why there is no lock. Nothing is held, and no lock node is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No try will be better.
    #[error("{0}")]
    Options(String),
    /// The keys cannot be asked for like this; another try will not help. A key is not printable ASCII, has spaces or
    /// is too long; there is no key, or more than 16; or other callers use the key with another number of permits.
    #[error("{0}")]
    Key(String),
    /// Another holder has the key, and the wait is over.
    #[error("held by another and the wait is over")]
    Locked,
    /// The paths of a session's lock nodes have reached their bound of 512 KiB. More sessions can hold more.
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    /// No session, or no answer in time: try again later.
    #[error("no lock service: {0}")]
    Unavailable(String),
    /// Nobody has made the installation: see [`ConnectOptions::with_init`](super::ConnectOptions::with_init).
    #[error("{0}")]
    NotInitialised(String),
    /// ZooKeeper was wiped or restored, so that new tokens would be below old ones. An operator has to begin the next
    /// era.
    #[error("{0}")]
    RolledBack(String),
}

impl From<AcquireError> for Error {
    fn from(why: AcquireError) -> Self {
        match why {
            AcquireError::Locked | AcquireError::QueueFull => Self::Locked,
            AcquireError::KeyLimit(which) => Self::KeyLimit(which),
            AcquireError::NotInitialised(why) => Self::NotInitialised(why),
            AcquireError::RolledBack(why) => Self::RolledBack(why),
            AcquireError::Service(why) => Self::Unavailable(why),
            // A client never asks to be sent to another gateway, nor to be told of a delay.
            AcquireError::Elsewhere(_) | AcquireError::NotHolder | AcquireError::Delayed(_) => {
                Self::Unavailable(why.to_string())
            }
            AcquireError::PermitsDiffer => Self::Key(why.to_string()),
        }
    }
}
