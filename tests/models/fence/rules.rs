//! What the model is told: how much may happen, and which rule of the protocol it goes without.

/// A rule of the protocol that a variant goes without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Compare a token with the mark at all, and register it.
    Guard,
    /// Wait until no other tenure's dispatch is in flight.
    Settle,
    /// Look at the mark again in the step that registers.
    SecondCheck,
    /// An exchange goes on when its gateway goes away.
    Detach,
    /// After an unclean stop admit nothing until everything that was sent before is over.
    Quarantine,
    /// Send nothing before it is on the disk that something may be at work.
    WriteFirst,
    /// Write that nothing is at work only when nothing is in flight.
    RestAfterEnd,
    /// And only when nothing is in doubt.
    RestAfterDoubt,
    /// And not while what was sent before a restart may go on.
    RestAfterQuarantine,
    /// Marks that were recovered refuse also their own tenure.
    StrictRecovery,
    /// A dispatch whose end was not seen closes the key.
    KeepDoubt,
    /// No dispatch under a tenure that has an unknown outcome.
    Retire,
    /// Behind a hop that may copy requests, take a refusal for unknown.
    DisbelieveHop,
}

/// How much may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    pub(super) tenures: u8,
    pub(super) dispatches: u8,
    pub(super) copies: u8,
    pub(super) restarts: u8,
    pub(super) losses: u8,
}

pub(super) struct Fence {
    pub(super) bounds: Bounds,
    pub(super) without: Option<Rule>,
}

impl Fence {
    pub(super) fn follows(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}
