//! The parameters of the model: the number of events of each kind, and the rule of the protocol that is left out.

/// A rule of the protocol that a variant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelProtocolRule {
    /// Compare a token with the watermark, and register the token.
    Guard,
    /// Wait until no other tenure's dispatch is in flight.
    Settle,
    /// Check the watermark again in the step that registers.
    SecondCheck,
    /// An exchange goes on when its gateway goes away.
    Detach,
    /// After an unclean stop, admit nothing until all dispatches sent before the stop are over.
    Quarantine,
    /// Before a dispatch is sent, the disk must have the record that one may be in flight.
    WriteFirst,
    /// Record that the key is at rest only when nothing is in flight.
    RestAfterEnd,
    /// Record that the key is at rest only when nothing is in doubt.
    RestAfterDoubt,
    /// Do not record that the key is at rest while dispatches from before a restart may go on.
    RestAfterQuarantine,
    /// A watermark that was read from the disk refuses also the tenure that it names.
    StrictRecovery,
    /// A dispatch whose end was not seen closes the key.
    KeepDoubt,
    /// Send no further dispatch under a tenure that has an unknown outcome.
    Retire,
    /// Behind a hop that may copy requests, treat a refusal as an unknown outcome.
    DisbelieveHop,
}

/// The number of events of each kind: tenures, dispatches of each tenure, copies, restarts and lost connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelBounds {
    pub(super) tenures: u8,
    pub(super) dispatches: u8,
    pub(super) copies: u8,
    pub(super) restarts: u8,
    pub(super) losses: u8,
}

pub(super) struct FenceModel {
    pub(super) bounds: ModelBounds,
    pub(super) without: Option<ModelProtocolRule>,
}

impl FenceModel {
    pub(super) fn follows(&self, rule: ModelProtocolRule) -> bool {
        self.without != Some(rule)
    }
}
