//! A guard with a store of its own: it decides in memory, and the store remembers.

mod admit;
mod awake;
mod operations;
mod tend;
mod underway;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::{
    clock::{Boot, SharedClock},
    said::Brief,
};
use tracing::warn;

use self::{awake::Awake, underway::Underway};
use crate::{
    arbitration::Reach,
    metrics::GuardMetrics,
    place::Place,
    refused::Refused,
    register::{Answer, InDoubt, Quarantined, Register, Seen},
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
    awake: Awake,
    /// When it was locked. Who has the lock decides by this moment and by no other: a later one may be behind a time in
    /// which this process stood still, and which nobody has noticed.
    now: Boot,
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
        let mut register = Register::new(remembered, clock.now(), rules.longest_execution());
        if let Some(watch) = rules.watch.clone() {
            register.watch(watch, clock.now());
        }
        Self {
            state: Mutex::new(InMemory {
                register,
                underway: Underway::default(),
                awake: Awake::default(),
                now: clock.now(),
            }),
            store,
            committer,
            time: Time::new(remembered, clock.now(), rules.longest_execution()),
            clock,
            rules,
            metrics,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, InMemory> {
        // A poisoned lock does no harm: every change of the state is one call that keeps its invariants.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        state.now = now;
        // Before anybody decides by the clock.
        if let Some(slept) = state.awake.look(now) {
            state.register.slept(slept, now);
            if state.awake.is_watched {
                warn!(slept = %Brief(slept), "guard.slept: this time counts for no wait");
            }
        }
        state
    }

    /// The places that have to be asked whether they run.
    pub(crate) fn to_ask(&self) -> Vec<Place> {
        self.lock().register.to_ask()
    }

    pub(crate) fn seen_running(&self, place: &Place, answer: Answer) -> bool {
        let mut state = self.lock();
        let now = state.now;
        state.register.seen_running(place, answer, now)
    }

    pub(crate) fn place(&self, keys: &[ResourceKey], token: Token) -> Option<Place> {
        self.lock().register.place(keys, token)
    }

    pub(crate) fn not_seen(&self, place: &Place) -> bool {
        self.lock().register.not_seen(place)
    }

    /// Not by the lock: who hangs may have it.
    pub(crate) async fn store_turned(&self) {
        let last = self.committer.submit(Vec::new());
        // A store that has failed ends the process, which is told elsewhere.
        self.committer.durable(last).await.ok();
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn resolve(&self, keys: &[ResourceKey], token: Token) -> bool {
        let mut state = self.lock();
        let now = state.now;
        state.register.resolve(keys, token, now)
    }

    pub(crate) fn seen(&self, key: &ResourceKey) -> Option<Seen> {
        let state = self.lock();
        state.register.seen(key, state.now)
    }

    pub(crate) fn doubts(&self) -> Vec<InDoubt> {
        let state = self.lock();
        state.register.open_doubts(state.now)
    }

    pub(crate) fn reach(&self) -> Reach {
        let state = self.lock();
        Reach { floor: state.register.floor(), highest: state.register.highest(), database: None }
    }

    pub(crate) fn quarantine(&self) -> Option<Quarantined> {
        let state = self.lock();
        state.register.quarantine(state.now)
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
