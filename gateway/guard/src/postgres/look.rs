//! What one look at the keys of a claim comes to, and what it is called afterwards.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::{clock::Boot, randomness::Guid};

use crate::refused::Refused;

/// Names a dispatch before anybody is asked to let it in: by this name it is found again, and ended, whatever answer
/// was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DispatchName(pub(super) Guid);

/// A dispatch that was let in, for whoever has to say how it ended.
#[derive(Debug, Clone)]
pub struct InFlight {
    pub name: DispatchName,
    pub keys: Arc<[ResourceKey]>,
    pub token: Token,
    pub mode: Mode,
}

/// What became of a wish to run.
pub enum Look {
    /// It is in flight, and the database has said so. `since` is before it was asked: what the dispatch may do is
    /// counted from there.
    Running {
        dispatch: InFlight,
        since: Boot,
    },
    /// Another one is in flight. Look again when told; `doubt` where only doubts are in the way: how long the last of
    /// them takes.
    Wait {
        told: Changed,
        doubt: Option<Duration>,
    },
    Refused(Refused),
    /// The right to decide over its operation was taken over by another guard, which held this one for dead.
    NotHeld,
}

/// Returns when something may have changed.
pub type Changed = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running { dispatch, .. } => write!(f, "Running({})", dispatch.name),
            Self::Wait { doubt, .. } => write!(f, "Wait({doubt:?})"),
            Self::Refused(refused) => write!(f, "Refused({refused:?})"),
            Self::NotHeld => f.write_str("NotHeld"),
        }
    }
}

impl fmt::Debug for DispatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for DispatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
