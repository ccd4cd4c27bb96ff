//! A guard with a store of its own: it decides in memory, and the store remembers.

mod admit;
mod background;
mod operations;
mod sleep_detector;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencegate_guard_store::{
    admission::{AdmissionTable, GuardKeyView, InDoubtExecution, LivenessProbeAnswer, QuarantineStatus},
    config::GuardConfig,
    dispatch_target::DispatchTarget,
    error::DispatchRefusedError,
    metrics::GuardMetrics,
    store::{
        CommitError, CommitQueueHandle, CommitSeq, GuardStore, RecoveredState, StoreError, StoreMutation,
    },
    store_clock::PersistedStoreClock,
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, token::FencingToken};
use fencegate_process::{
    clock::{BootInstant, SharedClock},
    display::FormattedDuration,
};
use tokio::sync::{Notify, futures::OwnedNotified};
use tracing::warn;

use self::sleep_detector::ProcessPauseDetector;
use crate::backend_types::TokenEpochBounds;

/// The state of a guard with a store of its own: the admission table in memory decides, and the store keeps the
/// part that has to outlive the process.
pub(crate) struct LocalGuardBackend {
    state: Mutex<LocalGuardState>,
    store: Arc<dyn GuardStore>,
    commits: CommitQueueHandle,
    clock: SharedClock,
    time: PersistedStoreClock,
    config: GuardConfig,
    metrics: GuardMetrics,
}

pub(crate) struct LocalGuardState {
    pub(crate) register: AdmissionTable,
    pub(crate) active_operations: ActiveOperations,
    sleep_detector: ProcessPauseDetector,
    /// The instant at which the lock was taken. The lock's holder decides by this instant and never reads the
    /// clock again: the process may have been paused, unnoticed, between this instant and a later reading.
    now: BootInstant,
}

impl LocalGuardBackend {
    pub(crate) fn new(
        config: GuardConfig,
        recovered: &RecoveredState,
        store: Arc<dyn GuardStore>,
        committer: CommitQueueHandle,
        clock: SharedClock,
        metrics: GuardMetrics,
    ) -> Self {
        let mut table = AdmissionTable::new(recovered, clock.now(), config.max_completion_delay());
        if let Some(watch) = config.watch.clone() {
            table.start_probing(watch, clock.now());
        }
        Self {
            state: Mutex::new(LocalGuardState {
                register: table,
                active_operations: ActiveOperations::default(),
                sleep_detector: ProcessPauseDetector::default(),
                now: clock.now(),
            }),
            store,
            commits: committer,
            time: PersistedStoreClock::new(recovered, clock.now(), config.max_completion_delay()),
            clock,
            config,
            metrics,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LocalGuardState> {
        // A poisoned lock does no harm: every change of the state is one call that keeps its invariants.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        state.now = now;
        // A sleep is recorded before the caller decides anything by the clock.
        if let Some(slept) = state.sleep_detector.detect_pause(now) {
            state.register.record_process_pause(slept, now);
            if state.sleep_detector.is_watched {
                warn!(slept = %FormattedDuration(slept), "guard.slept: the time of the suspension counts for no wait");
            }
        }
        state
    }

    /// The targets that have to be probed.
    pub(crate) fn targets_to_probe(&self) -> Vec<DispatchTarget> {
        self.lock().register.targets_to_probe()
    }

    pub(crate) fn record_alive(&self, target: &DispatchTarget, answer: LivenessProbeAnswer) -> bool {
        let mut state = self.lock();
        let now = state.now;
        state.register.record_alive(target, answer, now)
    }

    pub(crate) fn dispatch_target(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Option<DispatchTarget> {
        self.lock().register.dispatch_target(keys, token)
    }

    pub(crate) fn record_silent(&self, target: &DispatchTarget) -> bool {
        self.lock().register.record_silent(target)
    }

    /// Does not take the lock of the state, because a thread that hangs may hold it.
    pub(crate) async fn ping_store_thread(&self) {
        let last = self.commits.submit(Vec::new());
        // A store that has failed ends the process; the failure is reported elsewhere.
        self.commits.wait_durable(last).await.ok();
    }

    pub(crate) fn store(&self) -> &dyn GuardStore {
        &*self.store
    }

    pub(crate) fn resolve_doubt(&self, keys: &[ResourceKey], token: FencingToken) -> bool {
        let mut state = self.lock();
        let now = state.now;
        state.register.resolve_doubt(keys, token, now)
    }

    pub(crate) fn key_view(&self, key: &ResourceKey) -> Option<GuardKeyView> {
        let state = self.lock();
        state.register.key_view(key, state.now)
    }

    pub(crate) fn doubts(&self) -> Vec<InDoubtExecution> {
        let state = self.lock();
        state.register.open_doubts(state.now)
    }

    pub(crate) fn progress(&self) -> TokenEpochBounds {
        let state = self.lock();
        TokenEpochBounds {
            floor: state.register.epoch_floor(),
            highest: state.register.highest_epoch(),
            database: None,
        }
    }

    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        let state = self.lock();
        state.register.quarantine(state.now)
    }

    pub(crate) async fn wait_for_failure(&self) -> CommitError {
        self.commits.wait_for_failure().await
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn store_time_seconds(&self) -> u64 {
        self.time.store_seconds_at(self.now())
    }

    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    /// Returns when all changes up to this position of the commit queue are durable.
    async fn wait_durable(&self, moment: CommitSeq) -> Result<(), DispatchRefusedError> {
        self.commits
            .wait_durable(moment)
            .await
            .map_err(|failed| DispatchRefusedError::Store(failed.to_string()))
    }

    /// The store's time and the longest execution, as changes to be written.
    fn store_time_change(&self) -> Vec<StoreMutation> {
        self.time.store_time_mutation(self.now())
    }

    fn read_error(&self, error: &StoreError) -> DispatchRefusedError {
        self.metrics.record_store_error("read");
        DispatchRefusedError::Store(error.to_string())
    }

    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.commits.close();
    }
}

/// The reserved operations, and those of them that run.
#[derive(Debug, Default)]
pub(crate) struct ActiveOperations {
    reserved: HashMap<OperationId, Arc<Notify>>,
    /// The operations that run or are about to run, and whose end is not written yet.
    running: HashSet<OperationId>,
}

impl ActiveOperations {
    /// Reserves the operation for the caller. If it is reserved already, the error resolves when it is released.
    pub(crate) fn reserve(&mut self, id: OperationId) -> Result<(), OwnedNotified> {
        match self.reserved.get(&id) {
            Some(notifier) => Err(notifier.clone().notified_owned()),
            None => {
                self.reserved.insert(id, Arc::default());
                Ok(())
            }
        }
    }

    /// The operations that run or are about to run.
    pub(crate) fn running(&self) -> HashSet<OperationId> {
        self.running.clone()
    }

    pub(crate) fn is_reserved(&self, id: &OperationId) -> bool {
        self.reserved.contains_key(id)
    }

    /// Counts the operation as running, from before its admission is written until it is released.
    pub(crate) fn mark_running(&mut self, id: OperationId) {
        self.running.insert(id);
    }

    pub(crate) fn release(&mut self, id: &OperationId) {
        self.running.remove(id);
        if let Some(notifier) = self.reserved.remove(id) {
            notifier.notify_waiters();
        }
    }
}
