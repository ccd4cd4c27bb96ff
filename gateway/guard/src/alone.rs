//! A guard with a store of its own: it decides in memory, and the store remembers.

mod admit;
mod awake;
mod operations;
mod tend;
mod underway;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::{
    clock::{BootInstant, SharedClock},
    said::HumanDuration,
};
use tracing::warn;

use self::{awake::SleepDetector, underway::ActiveOperations};
use crate::{
    arbitration::StoreProgress,
    metrics::GuardMetrics,
    place::DispatchTarget,
    refused::AdmitError,
    register::{AdmissionTable, InDoubtExecution, KeyView, LivenessAnswer, QuarantineStatus},
    rules::GuardConfig,
    store::{Change, CommitError, CommitHandle, CommitSeq, RecoveredState, Store, StoreError},
    time::StoreClock,
};

/// The state of such a guard: the register in memory decides, and the store keeps what has to outlive the process.
pub(crate) struct LocalBackend {
    state: Mutex<LocalState>,
    store: Arc<dyn Store>,
    committer: CommitHandle,
    clock: SharedClock,
    time: StoreClock,
    rules: GuardConfig,
    metrics: GuardMetrics,
}

pub(crate) struct LocalState {
    pub(crate) register: AdmissionTable,
    pub(crate) underway: ActiveOperations,
    awake: SleepDetector,
    /// When it was locked. Who has the lock decides by this moment and by no other: a later one may be behind a time in
    /// which this process stood still, and which nobody has noticed.
    now: BootInstant,
}

impl LocalBackend {
    pub(crate) fn new(
        rules: GuardConfig,
        remembered: &RecoveredState,
        store: Arc<dyn Store>,
        committer: CommitHandle,
        clock: SharedClock,
        metrics: GuardMetrics,
    ) -> Self {
        let mut register = AdmissionTable::new(remembered, clock.now(), rules.longest_execution());
        if let Some(watch) = rules.watch.clone() {
            register.watch(watch, clock.now());
        }
        Self {
            state: Mutex::new(LocalState {
                register,
                underway: ActiveOperations::default(),
                awake: SleepDetector::default(),
                now: clock.now(),
            }),
            store,
            committer,
            time: StoreClock::new(remembered, clock.now(), rules.longest_execution()),
            clock,
            rules,
            metrics,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LocalState> {
        // A poisoned lock does no harm: every change of the state is one call that keeps its invariants.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        state.now = now;
        // Before anybody decides by the clock.
        if let Some(slept) = state.awake.look(now) {
            state.register.slept(slept, now);
            if state.awake.is_watched {
                warn!(slept = %HumanDuration(slept), "guard.slept: this time counts for no wait");
            }
        }
        state
    }

    /// The places that have to be asked whether they run.
    pub(crate) fn to_ask(&self) -> Vec<DispatchTarget> {
        self.lock().register.to_ask()
    }

    pub(crate) fn seen_running(&self, place: &DispatchTarget, answer: LivenessAnswer) -> bool {
        let mut state = self.lock();
        let now = state.now;
        state.register.seen_running(place, answer, now)
    }

    pub(crate) fn place(&self, keys: &[ResourceKey], token: Token) -> Option<DispatchTarget> {
        self.lock().register.place(keys, token)
    }

    pub(crate) fn not_seen(&self, place: &DispatchTarget) -> bool {
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

    pub(crate) fn seen(&self, key: &ResourceKey) -> Option<KeyView> {
        let state = self.lock();
        state.register.seen(key, state.now)
    }

    pub(crate) fn doubts(&self) -> Vec<InDoubtExecution> {
        let state = self.lock();
        state.register.open_doubts(state.now)
    }

    pub(crate) fn reach(&self) -> StoreProgress {
        let state = self.lock();
        StoreProgress { floor: state.register.floor(), highest: state.register.highest(), database: None }
    }

    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        let state = self.lock();
        state.register.quarantine(state.now)
    }

    pub(crate) async fn failed(&self) -> CommitError {
        self.committer.failed().await
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn time(&self) -> u64 {
        self.time.at(self.now())
    }

    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    /// Returns when everything up to this moment is durable.
    async fn durable(&self, moment: CommitSeq) -> Result<(), AdmitError> {
        self.committer.durable(moment).await.map_err(|failed| AdmitError::Store(failed.to_string()))
    }

    /// The store's time, as a change to be written; empty if there is none.
    fn passed(&self) -> Vec<Change> {
        self.time.passed(self.now())
    }

    fn unreadable(&self, error: &StoreError) -> AdmitError {
        self.metrics.store_error("read");
        AdmitError::Store(error.to_string())
    }

    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.committer.close();
    }
}
