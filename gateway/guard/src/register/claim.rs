//! Who asks to be let in, and what it is called once it has been.

use std::sync::Arc;

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::clock::Boot;

/// A dispatch as its gateway presents it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Sorted, without doubles, at least one.
    pub keys: Arc<[ResourceKey]>,
    pub token: Token,
    pub mode: Mode,
    /// By its ticket. Tokens of a later era than any before may be far larger.
    pub era: Option<u64>,
    /// The dispatch that it was called from, by the word of a gateway that has shown its ticket: it may run beside that one, and
    /// beside whatever that one was called from.
    pub parent: Option<Token>,
}

/// Names a dispatch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DispatchId(pub(super) u64);

impl DispatchId {
    /// Of one that was named elsewhere, for people.
    pub(crate) fn of(name: &str) -> Self {
        Self(name.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default())
    }
}

/// A dispatch that was let in and is not known to be over.
#[derive(Debug, Clone)]
pub struct Open {
    pub keys: Arc<[ResourceKey]>,
    pub token: Token,
    pub mode: Mode,
    /// In doubt until then; `None` while it runs.
    pub until: Option<Boot>,
}

impl Claim {
    /// The dispatch of the same tenure that it was called from.
    pub(crate) fn caller(&self) -> Option<Token> {
        self.parent.filter(|parent| parent.same_tenure(self.token))
    }

    /// It was called from a dispatch: whoever waits for it may be waited for by others.
    pub fn is_called(&self) -> bool {
        self.parent.is_some()
    }
}

impl Open {
    pub(super) fn running(claim: &Claim) -> Self {
        Self { keys: claim.keys.clone(), token: claim.token, mode: claim.mode, until: None }
    }
}

/// An execution whose end was not seen, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubt {
    pub token: Token,
    pub mode: Mode,
    pub keys: Vec<ResourceKey>,
    pub until: Boot,
}
