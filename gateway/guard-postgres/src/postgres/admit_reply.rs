//! The result of one check of the keys of a claim, and the name of a dispatch.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use fencegate_guard_store::error::DispatchRefusedError;
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::{clock::BootInstant, randomness::Guid};

use super::name_registry::OwnedRowHandle;

/// Names a dispatch before its first check. By this name it is found and ended even if replies are lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DispatchName(pub(super) Guid);

/// An admitted dispatch, as needed to end it. Keep a clone until the end is recorded: a dispatch without a handle
/// counts as over, `send_within` and `max_execution` after the next connection to the database.
#[derive(Debug, Clone)]
pub struct InFlightDispatch {
    pub name: DispatchName,
    pub keys: Arc<[ResourceKey]>,
    pub token: FencingToken,
    pub mode: LockMode,
    pub(super) _in_hand: OwnedRowHandle,
}

/// The result of one check of a claim.
pub enum PostgresAdmissionOutcome {
    /// The dispatch is in flight. `since`: the moment before the request to the database, from which the
    /// permission to send is measured.
    Running {
        dispatch: InFlightDispatch,
        since: BootInstant,
    },
    /// Another dispatch blocks this one. Check again when notified. `doubt`: if only doubts block it, the
    /// remaining time of the last one.
    Wait {
        told: ChangeFuture,
        doubt: Option<Duration>,
    },
    Rejected(DispatchRefusedError),
    /// Another guard has declared this one dead, and has taken over its operation lock.
    NotHeld,
}

/// A future that resolves when the state of the key or operation may have changed.
pub type ChangeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for PostgresAdmissionOutcome {
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
