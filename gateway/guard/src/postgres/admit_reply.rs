//! The result of one look at the keys of a claim, and the name of a dispatch.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::{clock::BootInstant, randomness::Guid};

use super::name_registry::NameHandle;
use crate::error::AdmitError;

/// Names a dispatch before its first look. By this name it is found and ended even if answers are lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DispatchName(pub(super) Guid);

/// A dispatch that was let in, as needed to end it. Keep a clone until the end is told: what nobody has in hand counts as
/// over, `send_within` and `max_execution` after the next connection to the database.
#[derive(Debug, Clone)]
pub struct InFlightDispatch {
    pub name: DispatchName,
    pub keys: Arc<[ResourceKey]>,
    pub token: Token,
    pub mode: Mode,
    pub(super) _in_hand: NameHandle,
}

/// The result of a look.
pub enum AdmitReply {
    /// The dispatch is in flight. `since`: the moment before the database was asked, from which its permission is
    /// reckoned.
    Running {
        dispatch: InFlightDispatch,
        since: BootInstant,
    },
    /// Another dispatch is in the way. Look again when told. `doubt`: set if only doubts are in the way; how long the
    /// last one lasts.
    Wait {
        told: ChangeFuture,
        doubt: Option<Duration>,
    },
    Rejected(AdmitError),
    /// Another guard has taken this one for dead, and has taken over the right to its operation.
    NotHeld,
}

/// Returns when something may have changed.
pub type ChangeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for AdmitReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running { dispatch, .. } => write!(f, "Running({})", dispatch.name),
            Self::Wait { doubt, .. } => write!(f, "Wait({doubt:?})"),
            Self::Rejected(refused) => write!(f, "Refused({refused:?})"),
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
