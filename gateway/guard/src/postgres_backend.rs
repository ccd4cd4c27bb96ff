//! A guard with a shared store: the database decides, and memory is never authoritative.

mod admit;
mod operations;

use std::time::Duration;

use fencegate_guard_postgres::postgres::{
    BEAT, GuardMembershipLease, PostgresError, PostgresStore, StoreQuarantine, StoreStatus,
};
use fencegate_guard_store::{
    admission::{
        GuardKeyView, InDoubtExecution, LivenessProbeAnswer, QuarantineReason, QuarantineScope,
        QuarantineStatus,
    },
    config::GuardConfig,
    dispatch_target::DispatchTarget,
    error::DispatchRefusedError,
    metrics::GuardMetrics,
    store::CommitError,
};
use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::clock::{BootInstant, SharedClock};
use tokio::{runtime::Handle, sync::watch, time::sleep};

use crate::backend_types::TokenEpochBounds;

/// The backend of a guard with a shared store. It sends every decision to the database.
pub(crate) struct PostgresBackend {
    postgres: PostgresStore,
    config: GuardConfig,
    clock: SharedClock,
    metrics: GuardMetrics,
    /// The runtime of the store's thread.
    runtime: Handle,
    /// Makes the store's thread end.
    ending: watch::Sender<StoreThreadState>,
    /// Closed when the store's thread has ended.
    gone: watch::Receiver<()>,
}

/// Whether the store's thread has to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreThreadState {
    Running,
    Graceful,
}

/// The interval at which the gauges that need a query to the database are updated.
const COUNT: Duration = Duration::from_secs(5);

/// Unknown operations are counted up to this number.
const MOST_COUNTED: usize = 10_000;

impl PostgresBackend {
    pub(crate) fn new(
        postgres: PostgresStore,
        config: GuardConfig,
        clock: SharedClock,
        metrics: GuardMetrics,
        runtime: Handle,
        ending: watch::Sender<StoreThreadState>,
        gone: watch::Receiver<()>,
    ) -> Self {
        postgres.set_metrics(metrics.clone());
        if let Some(watch) = config.watch.clone() {
            postgres.start_probing(watch);
        }
        Self { postgres, config, clock, metrics, runtime, ending, gone }
    }

    /// The lease of this guard. Bytes may be sent upstream only while the lease is valid.
    pub(crate) fn membership(&self) -> GuardMembershipLease {
        self.postgres.membership()
    }

    pub(crate) async fn resolve_doubt(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Result<bool, DispatchRefusedError> {
        self.record_result("resolve", self.postgres.resolve_doubt(keys, token).await)
    }

    pub(crate) async fn key_view(
        &self,
        key: &ResourceKey,
    ) -> Result<Option<GuardKeyView>, DispatchRefusedError> {
        let key = key.clone();
        self.run_store_read(move |postgres| async move { postgres.key_view(&key).await }).await
    }

    pub(crate) async fn doubts(&self) -> Result<Vec<InDoubtExecution>, DispatchRefusedError> {
        self.run_store_read(|postgres| async move { postgres.doubts().await }).await
    }

    /// The database is queried each time, because a gateway may have seen a newer token of another guard.
    pub(crate) async fn progress(&self) -> Result<TokenEpochBounds, DispatchRefusedError> {
        let (highest, database) = self
            .run_store_read(|postgres| async move {
                Ok((postgres.highest_epoch().await?, postgres.database_id().await?))
            })
            .await?;
        Ok(TokenEpochBounds { floor: self.postgres.status().floor, highest, database: Some(database) })
    }

    /// The quarantine is over when a heartbeat reports its end, not when this machine's clock has reached it:
    /// the database goes by the store's time, which stands still between heartbeats.
    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        let StoreQuarantine { until, why } = self.postgres.status().closed?;
        Some(QuarantineStatus { until: until.max(self.now() + BEAT), scope: QuarantineScope::EveryKey(why) })
    }

    /// The targets that have to be probed.
    pub(crate) fn targets_to_probe(&self) -> Vec<DispatchTarget> {
        self.postgres.targets_to_probe()
    }

    pub(crate) fn record_alive(&self, target: &DispatchTarget, answer: LivenessProbeAnswer) -> bool {
        self.postgres.record_alive(target, answer)
    }

    pub(crate) fn record_silent(&self, target: &DispatchTarget) -> bool {
        self.postgres.record_silent(target)
    }

    pub(crate) fn dispatch_target(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Option<DispatchTarget> {
        self.postgres.dispatch_target(keys, token)
    }

    /// Whether the lease holds, so that the other guards cannot have declared this one dead.
    pub(crate) fn is_membership_valid(&self) -> bool {
        self.postgres.membership().is_valid(self.now())
    }

    pub(crate) async fn ping_store_thread(&self) {
        drop(self.runtime.spawn(async {}).await);
    }

    /// Does the background work that may be late. Decisions and heartbeats run on the store's own thread.
    pub(crate) async fn run_background(&self) {
        loop {
            if let Ok(unknown) = self
                .run_store_read(|postgres| async move { postgres.count_unknown(MOST_COUNTED).await })
                .await
            {
                self.metrics.set_unknown_operations(unknown);
            }
            sleep(COUNT).await;
        }
    }

    pub(crate) fn update_gauges(&self) {
        let StoreStatus { keys, in_flight, in_doubt, journal, others, closed, .. } = self.postgres.status();
        self.metrics.set_active_keys(in_flight);
        self.metrics.set_in_doubt(in_doubt);
        self.metrics.set_silent_executions(self.postgres.silent_doubt_count());
        self.metrics.set_store_keys(keys);
        self.metrics.set_quarantined(closed.as_ref().map_or(0, |_| keys.max(1)));
        self.metrics.set_rolled_back(closed.is_some_and(|closed| closed.why == QuarantineReason::RolledBack));
        self.metrics.set_journal(journal.entries, journal.bytes, self.config.journal.most);
        self.metrics.set_guards(others + 1);
        self.metrics.set_lease(self.postgres.membership().membership_expiry().since(self.now()));
    }

    pub(crate) async fn wait_for_failure(&self) -> CommitError {
        let mut gone = self.gone.clone();
        tokio::select! {
            lost = self.postgres.wait_for_loss() => CommitError(lost.to_string().into()),
            _ = gone.changed() => {
                let ending = *self.ending.borrow();
                match ending {
                    StoreThreadState::Running => CommitError("the store's thread has panicked".into()),
                    // The guard was shut down cleanly, so the store cannot fail any more.
                    StoreThreadState::Graceful => std::future::pending().await,
                }
            }
        }
    }

    pub(crate) async fn shut_down_cleanly(&self) -> Result<(), DispatchRefusedError> {
        let left = self.run_on_store(|postgres| async move { postgres.shut_down_cleanly().await }).await;
        let left = self.record_result("leave", left);
        self.ending.send_replace(StoreThreadState::Graceful);
        left
    }

    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    async fn run_store_read<T, F>(
        &self,
        asked: impl FnOnce(PostgresStore) -> F,
    ) -> Result<T, DispatchRefusedError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        self.record_result("read", self.run_on_store(asked).await)
    }

    /// Runs a request on the store's thread. A worker must not drive a connection, because it may be busy, or
    /// end earlier.
    async fn run_on_store<T, F>(&self, asked: impl FnOnce(PostgresStore) -> F) -> Result<T, PostgresError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        let answer = self.runtime.spawn(asked(self.postgres.clone())).await;
        answer.unwrap_or_else(|_| Err(PostgresError::Unreachable("the thread of the store has ended".into())))
    }

    fn record_result<T>(
        &self,
        op: &'static str,
        answer: Result<T, PostgresError>,
    ) -> Result<T, DispatchRefusedError> {
        answer.map_err(|unavailable| {
            self.metrics.record_store_error(op);
            DispatchRefusedError::Store(unavailable.to_string())
        })
    }
}
