//! A guard with a store of its own: it decides in memory, and the store remembers.

mod admit;
mod operations;
mod tend;
mod underway;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::clock::{Boot, SharedClock};

use self::underway::Underway;
use crate::{
    arbitration::Reach,
    metrics::GuardMetrics,
    refused::Refused,
    register::{InDoubt, Quarantined, Register, Seen},
    rules::Rules,
    store::{Change, Committer, Moment, NotDurable, Remembered, Store, StoreError},
    time::Time,
};

/// The state of such a guard: the register in memory decides, and the store keeps what has to outlive the process.
pub(crate) struct Alone {
    state: Mutex<InMemory>,
    store: Arc<dyn Store>,
    committer: Committer,
    clock: SharedClock,
    time: Time,
    rules: Rules,
    metrics: GuardMetrics,
}

pub(crate) struct InMemory {
    pub(crate) register: Register,
    pub(crate) underway: Underway,
}

impl Alone {
    pub(crate) fn new(
        rules: Rules,
        remembered: &Remembered,
        store: Arc<dyn Store>,
        committer: Committer,
        clock: SharedClock,
        metrics: GuardMetrics,
    ) -> Self {
        let register = Register::new(remembered, clock.now(), rules.max_execution);
        Self {
            state: Mutex::new(InMemory { register, underway: Underway::default() }),
            store,
            committer,
            time: Time::new(remembered, clock.now(), rules.max_execution),
            clock,
            rules,
            metrics,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, InMemory> {
        // A poisoned lock does no harm: every change of the state is one call that keeps its invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn resolve(&self, keys: &[ResourceKey], token: Token) -> bool {
        self.lock().register.resolve(keys, token, self.now())
    }

    pub(crate) fn seen(&self, key: &ResourceKey) -> Option<Seen> {
        self.lock().register.seen(key, self.now())
    }

    pub(crate) fn doubts(&self) -> Vec<InDoubt> {
        self.lock().register.open_doubts(self.now())
    }

    pub(crate) fn reach(&self) -> Reach {
        let state = self.lock();
        Reach { floor: state.register.floor(), highest: state.register.highest(), database: None }
    }

    pub(crate) fn quarantine(&self) -> Option<Quarantined> {
        self.lock().register.quarantine(self.now())
    }

    pub(crate) async fn failed(&self) -> NotDurable {
        self.committer.failed().await
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn time(&self) -> u64 {
        self.time.at(self.now())
    }

    fn now(&self) -> Boot {
        self.clock.now()
    }

    /// Returns when everything up to this moment is durable.
    async fn durable(&self, moment: Moment) -> Result<(), Refused> {
        self.committer.durable(moment).await.map_err(|failed| Refused::Store(failed.to_string()))
    }

    /// The store's time, as a change to be written; empty if there is none.
    fn passed(&self) -> Vec<Change> {
        self.time.passed(self.now())
    }

    fn unreadable(&self, error: &StoreError) -> Refused {
        self.metrics.store_error("read");
        Refused::Store(error.to_string())
    }

    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.committer.close();
    }
}
