//! The state at one moment, and what an observer remembers of earlier moments.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::ModelBounds;

/// The token (E, G): the number of the tenure, from 1, and of the dispatch within the tenure, from 1. The derived
/// order is the protocol's order of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ModelToken {
    pub(super) e: u8,
    pub(super) g: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelState {
    pub(super) gateways: [ModelGatewayState; 2],
    /// The gateway whose session holds the lock, by the lock service's view.
    pub(super) holder: Option<u8>,
    pub(super) next_e: u8,
    /// Dispatches on their way to the guard, each with the number of its copies.
    pub(super) network: BTreeMap<ModelToken, u8>,
    pub(super) guard: GuardState,
    pub(super) upstream: ModelUpstreamState,
    pub(super) left: ModelBounds,
    /// Dispatches that were reported to a gateway as not executed.
    pub(super) denied: BTreeSet<ModelToken>,
    pub(super) broken: Option<BrokenInvariant>,
    /// The notable event of the last step, if there is one.
    pub(super) event: Option<ModelEvent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelGatewayState {
    /// The tenure that the gateway believes to hold.
    pub(super) tenure: Option<ModelToken>,
    /// The gateway waits for the answer to the dispatch that `tenure` counts.
    pub(super) waits: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GuardState {
    /// The watermark: the newest announced dispatch.
    pub(super) newest: ModelToken,
    /// Dispatches that were announced and not admitted. The value is true if, on arrival, another dispatch was in
    /// flight or in doubt.
    pub(super) announced: BTreeMap<ModelToken, bool>,
    pub(super) in_flight: BTreeSet<ModelToken>,
    /// Dispatches in flight that wait for the disk before they are sent.
    pub(super) unsent: BTreeSet<ModelToken>,
    /// The value on the disk: true if something may be in flight.
    pub(super) at_work: bool,
    /// The values of `at_work` whose writes are queued, the oldest first.
    pub(super) line: Vec<bool>,
    pub(super) in_doubt: BTreeSet<ModelToken>,
    pub(super) quarantine: bool,
    /// True if the watermark was read from the disk, which has only the tenure of a token.
    pub(super) recovered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct ModelUpstreamState {
    /// Dispatches that have reached the upstream and have not begun.
    pub(super) received: BTreeSet<ModelToken>,
    pub(super) running: BTreeSet<ModelToken>,
    pub(super) begun: BTreeSet<ModelToken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BrokenInvariant {
    Overlap,
    Stale,
    Twice,
    Lied,
}

/// Events that must occur in some schedule. If one never occurred, the safety properties would hold only because
/// nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelEvent {
    Stale,
    HandedOver,
    Quarantined,
    AtRest,
    InDoubt,
    Duplicate,
    Waited,
}

impl ModelState {
    pub(super) fn new(bounds: ModelBounds) -> ModelState {
        ModelState {
            gateways: [ModelGatewayState::default(); 2],
            holder: None,
            next_e: 1,
            network: BTreeMap::new(),
            guard: GuardState {
                newest: ModelToken { e: 0, g: 0 },
                announced: BTreeMap::new(),
                in_flight: BTreeSet::new(),
                unsent: BTreeSet::new(),
                at_work: false,
                line: Vec::new(),
                in_doubt: BTreeSet::new(),
                quarantine: false,
                recovered: false,
            },
            upstream: ModelUpstreamState::default(),
            left: bounds,
            denied: BTreeSet::new(),
            broken: None,
            event: None,
        }
    }
}

impl GuardState {
    /// True if the dispatch may be admitted: no dispatch of another tenure is in flight, and none is in doubt.
    pub(super) fn is_clear_for(&self, token: ModelToken) -> bool {
        self.in_doubt.is_empty() && self.in_flight.iter().all(|other| other.e == token.e)
    }

    /// The value of `at_work` when all queued writes are done.
    pub(super) fn eventual_disk_value(&self) -> bool {
        self.line.last().copied().unwrap_or(self.at_work)
    }

    /// The guard is killed and starts again. It keeps the value on the disk, and of the watermark only the tenure.
    pub(super) fn restart(&mut self) {
        self.announced.clear();
        self.in_flight.clear();
        self.unsent.clear();
        self.line.clear();
        self.in_doubt.clear();
        self.recovered = true;
        self.newest.g = 0;
    }
}

impl ModelUpstreamState {
    /// True if no dispatch that reached the upstream runs or can still begin. The model assumes this after
    /// `max_execution`.
    pub(super) fn is_idle(&self) -> bool {
        self.received.is_empty() && self.running.is_empty()
    }

    pub(super) fn is_running(&self, token: ModelToken) -> bool {
        self.received.contains(&token) || self.running.contains(&token)
    }

    /// The violation that this execution commits by beginning now, if there is one.
    pub(super) fn judge(&self, token: ModelToken) -> Option<BrokenInvariant> {
        if !self.running.is_empty() {
            Some(BrokenInvariant::Overlap)
        } else if self.begun.contains(&token) {
            Some(BrokenInvariant::Twice)
        } else if self.begun.last().is_some_and(|newest| *newest > token) {
            Some(BrokenInvariant::Stale)
        } else {
            None
        }
    }
}
