//! Why a program gets no lock.

use crate::tenures::keeper::Refused;

/// Why there is no lock. Nothing is held, and nothing is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No try will be better.
    #[error("{0}")]
    Options(String),
    /// No try will be better: not printable ASCII without spaces, too long, none at all, or more than 16 at once; or others
    /// hold it several at once.
    #[error("{0}")]
    Key(String),
    /// Somebody else holds it, and the wait is over.
    #[error("held by another and the wait is over")]
    Locked,
    /// The paths of everything that a session holds are bounded, at 512 KiB; more sessions hold more.
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    /// No session, or no answer in time: try again later.
    #[error("no lock service: {0}")]
    Unavailable(String),
    /// Nobody has made the installation: see [`Options::init`].
    #[error("{0}")]
    NotInitialised(String),
    /// ZooKeeper gives out tokens below those that were seen: it was wiped or restored, and an operator has to begin
    /// the next era.
    #[error("{0}")]
    RolledBack(String),
}

impl From<Refused> for Error {
    fn from(why: Refused) -> Self {
        match why {
            Refused::Locked | Refused::QueueFull => Self::Locked,
            Refused::KeyLimit(which) => Self::KeyLimit(which),
            Refused::NotInitialised(why) => Self::NotInitialised(why),
            Refused::RolledBack(why) => Self::RolledBack(why),
            Refused::Service(why) => Self::Unavailable(why),
            // Nobody is sent on who waits here, and nobody who asks here has a delay.
            Refused::Elsewhere(_) | Refused::NotHolder | Refused::Delayed(_) => {
                Self::Unavailable(why.to_string())
            }
            Refused::PermitsDiffer => Self::Key(why.to_string()),
        }
    }
}
