//! Claims, and admitted dispatches.

use std::sync::Arc;

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::BootInstant;

use crate::dispatch_target::DispatchTarget;

/// A dispatch as its gateway presents it.
#[derive(Debug, Clone)]
pub struct PresentedDispatch {
    /// Sorted, without duplicates, at least one.
    pub keys: Arc<[ResourceKey]>,
    pub token: FencingToken,
    pub mode: LockMode,
    /// The era that the dispatch's ticket names. Tokens of a new era may be far larger than all earlier ones.
    pub era: Option<u64>,
    /// For a callback: the token of the dispatch that called it. The callback may run beside that dispatch, and
    /// beside the dispatches that called that one in turn. Accepted only from gateways that have shown a ticket.
    pub parent: Option<FencingToken>,
}

/// Names a dispatch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DispatchId(pub(super) u64);

impl DispatchId {
    /// The id of a dispatch that has a name in a database; for display only.
    pub fn from_name_prefix(name: &str) -> Self {
        Self(name.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default())
    }
}

/// A dispatch that was admitted and is not known to be over.
#[derive(Debug, Clone)]
pub struct OpenDispatch {
    pub keys: Arc<[ResourceKey]>,
    pub token: FencingToken,
    pub mode: LockMode,
    /// The instant at which the dispatch counts as over; set once it is in doubt. If its endpoint has to be seen
    /// running, this is the earliest such instant.
    pub until: Option<BootInstant>,
    /// The target to which the dispatch was sent, if known.
    pub place: Option<DispatchTarget>,
}

impl PresentedDispatch {
    /// The token of a callback's caller, if the caller is of the same tenure.
    pub fn caller(&self) -> Option<FencingToken> {
        self.parent.filter(|parent| parent.same_grant(self.token))
    }

    /// Whether the dispatch is a callback. A callback must not wait for operations, because its caller may have
    /// reserved them.
    pub fn is_callback(&self) -> bool {
        self.parent.is_some()
    }
}

impl OpenDispatch {
    pub(super) fn from_claim(claim: &PresentedDispatch) -> Self {
        Self { keys: claim.keys.clone(), token: claim.token, mode: claim.mode, until: None, place: None }
    }
}

/// An execution whose end was not seen, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubtExecution {
    pub token: FencingToken,
    pub mode: LockMode,
    pub keys: Vec<ResourceKey>,
    /// The instant at which the execution counts as over. If its endpoint has to be seen running, this is the
    /// earliest such instant.
    pub until: BootInstant,
    /// The target to which the request was sent, if known.
    pub place: Option<DispatchTarget>,
    /// Whether the endpoint does not answer probes now. While it does not, the time that is left of the doubt
    /// does not get shorter.
    pub silent: bool,
}
