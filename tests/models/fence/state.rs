//! What there is at one moment, and what an observer remembers of the moments before.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Bounds;

/// (E, G): the tenure, from 1, and its dispatch, from 1. The order is that of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Token {
    pub(super) e: u8,
    pub(super) g: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) gateways: [Gateway; 2],
    /// Whose session holds the lock, as the lock service sees it.
    pub(super) holder: Option<u8>,
    pub(super) next_e: u8,
    /// Dispatches on their way to the guard, and how many copies of each.
    pub(super) network: BTreeMap<Token, u8>,
    pub(super) guard: Guard,
    pub(super) upstream: Upstream,
    pub(super) left: Bounds,
    /// Dispatches that a gateway takes for not dispatched.
    pub(super) denied: BTreeSet<Token>,
    pub(super) broken: Option<Broken>,
    /// What is worth mentioning about the last step.
    pub(super) event: Option<Event>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Gateway {
    /// The tenure it believes to have.
    pub(super) tenure: Option<Token>,
    /// It waits for the answer to the dispatch that `tenure` counts.
    pub(super) waits: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guard {
    /// The mark: of the dispatches announced, the newest.
    pub(super) newest: Token,
    /// Announced, not admitted; whether something was in the way when it arrived.
    pub(super) announced: BTreeMap<Token, bool>,
    pub(super) in_flight: BTreeSet<Token>,
    /// Of those in flight, what waits for the disk before it is sent.
    pub(super) unsent: BTreeSet<Token>,
    /// On the disk: something may be at work.
    pub(super) at_work: bool,
    /// What is handed in to be written of it, in this order.
    pub(super) line: Vec<bool>,
    pub(super) in_doubt: BTreeSet<Token>,
    pub(super) quarantine: bool,
    /// The mark was read from disk, which knows tenures only.
    pub(super) recovered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Upstream {
    /// Written to it, not begun.
    pub(super) received: BTreeSet<Token>,
    pub(super) running: BTreeSet<Token>,
    pub(super) begun: BTreeSet<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    Overlap,
    Stale,
    Twice,
    Lied,
}

/// What must be seen to happen, lest the promises hold because nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Stale,
    HandedOver,
    Quarantined,
    AtRest,
    InDoubt,
    Duplicate,
    Waited,
}

impl State {
    pub(super) fn new(bounds: Bounds) -> State {
        State {
            gateways: [Gateway::default(); 2],
            holder: None,
            next_e: 1,
            network: BTreeMap::new(),
            guard: Guard {
                newest: Token { e: 0, g: 0 },
                announced: BTreeMap::new(),
                in_flight: BTreeSet::new(),
                unsent: BTreeSet::new(),
                at_work: false,
                line: Vec::new(),
                in_doubt: BTreeSet::new(),
                quarantine: false,
                recovered: false,
            },
            upstream: Upstream::default(),
            left: bounds,
            denied: BTreeSet::new(),
            broken: None,
            event: None,
        }
    }
}

impl Guard {
    /// Another tenure's dispatch in flight, or a doubt about any: nothing may be admitted beside it.
    pub(super) fn is_clear_for(&self, token: Token) -> bool {
        self.in_doubt.is_empty() && self.in_flight.iter().all(|other| other.e == token.e)
    }

    /// What will be on the disk when all that was handed in has been written.
    pub(super) fn told(&self) -> bool {
        self.line.last().copied().unwrap_or(self.at_work)
    }

    /// An unclean stop: what is on the disk survives, and of the mark only the tenure.
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

impl Upstream {
    /// Everything that was written to it is over: what `max_execution` promises.
    pub(super) fn is_idle(&self) -> bool {
        self.received.is_empty() && self.running.is_empty()
    }

    pub(super) fn works_on(&self, token: Token) -> bool {
        self.received.contains(&token) || self.running.contains(&token)
    }

    /// What is wrong with beginning this execution now.
    pub(super) fn judge(&self, token: Token) -> Option<Broken> {
        if !self.running.is_empty() {
            Some(Broken::Overlap)
        } else if self.begun.contains(&token) {
            Some(Broken::Twice)
        } else if self.begun.last().is_some_and(|newest| *newest > token) {
            Some(Broken::Stale)
        } else {
            None
        }
    }
}
