//! What decides over every dispatch to one upstream, and what it keeps.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::{key::ResourceKey, plan, token::Token};
use fencegate_process::clock::{Boot, SharedClock};
use serde::Serialize;

use crate::{
    metrics::GuardMetrics,
    refused::Refused,
    register::{Quarantined, Register, Scope},
    store::{Change, Committer, Identity, Moment, NotDurable, Remembered, Store},
    time::Time,
    underway::Underway,
};

/// What decides over every dispatch to one upstream. Shared by all workers.
pub struct Guard {
    pub rules: Rules,
    pub identity: Identity,
    /// Of this process: a second one on a copy of the same store has another.
    pub instance: String,
    /// It has its store since then.
    pub(crate) since: Boot,
    state: Mutex<State>,
    pub(crate) refusals: Mutex<Refusals>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) committer: Committer,
    clock: SharedClock,
    time: Time,
    pub metrics: GuardMetrics,
}

/// The times of a guard, and what it keeps.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How long a newer tenure waits for older executions.
    pub settle: Duration,
    /// So long after its last byte, an execution whose end was not seen counts as over.
    pub max_execution: Duration,
    /// Nothing is sent later than this after its admission.
    pub send_within: Duration,
    /// Marks of keys that nobody used for so long give way to the floor.
    pub evict_after: Duration,
    pub enforce: plan::Enforce,
    pub journal: plan::Journal,
}

pub(crate) struct State {
    pub(crate) register: Register,
    pub(crate) underway: Underway,
}

/// Dispatches that came too late.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Refusals {
    /// Since the start.
    pub stale: u64,
    pub latest: Option<Stale>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub struct Stale {
    pub keys: Vec<ResourceKey>,
    pub presented: Token,
    pub newest: Token,
}

/// As a file without them has them.
impl Default for Rules {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            max_execution: Duration::from_secs(30),
            send_within: Duration::from_secs(5),
            evict_after: Duration::from_secs(3600),
            enforce: plan::Enforce::Refuse,
            journal: plan::Journal {
                keep: Duration::from_secs(86_400),
                max_body: 64 << 10,
                most: 1 << 30,
                final_statuses: Vec::new(),
                probe: None,
            },
        }
    }
}

/// Keys that are remembered at most; beyond, the longest unused are forgotten early.
pub(crate) const MOST_KEYS: usize = 1_000_000;

impl Guard {
    pub fn new(
        rules: Rules,
        remembered: &Remembered,
        store: Arc<dyn Store>,
        committer: Committer,
        clock: SharedClock,
        instance: String,
        metrics: GuardMetrics,
    ) -> Self {
        let register = Register::new(remembered, clock.now(), rules.max_execution);
        Self {
            identity: remembered.identity.clone(),
            instance,
            since: clock.now(),
            state: Mutex::new(State { register, underway: Underway::default() }),
            refusals: Mutex::default(),
            store,
            committer,
            time: Time::new(remembered, clock.now(), rules.max_execution),
            rules,
            clock,
            metrics,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one call that keeps its invariants; who panicked in between has changed nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Boot {
        self.clock.now()
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn time(&self) -> u64 {
        self.time.at(self.now())
    }

    /// So long after its last byte, whatever may run now is over.
    pub(crate) fn longest_execution(&self) -> Duration {
        self.time.longest_execution(self.now())
    }

    /// Returns when everything up to this moment is durable.
    pub(crate) async fn durable(&self, moment: Moment) -> Result<(), Refused> {
        self.committer.durable(moment).await.map_err(|failed| Refused::Store(failed.to_string()))
    }

    /// Nothing is admitted on these keys before then.
    pub fn quarantine(&self) -> Option<Quarantined> {
        self.lock().register.quarantine(self.now())
    }

    /// Something could be admitted now: on some keys, that is.
    pub fn lets_in(&self) -> bool {
        !matches!(self.quarantine(), Some(Quarantined { scope: Scope::EveryKey(_), .. }))
    }

    /// What is to be written down of the time.
    pub(crate) fn passed(&self) -> Vec<Change> {
        self.time.passed(self.now())
    }

    /// Returns when nothing can be remembered any more.
    pub async fn store_failed(&self) -> NotDurable {
        self.committer.failed().await
    }
}

impl Rules {
    /// As a file has them.
    pub fn of(plan: &plan::Guard) -> Self {
        Self {
            settle: plan.settle,
            max_execution: plan.max_execution,
            send_within: plan.send_within,
            evict_after: plan.evict_after,
            enforce: plan.enforce,
            journal: plan.journal.clone(),
        }
    }
}
