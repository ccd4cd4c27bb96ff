//! A guard with a shared store: the database decides, and memory holds no truth.

mod admit;
mod operations;

use std::time::Duration;

use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::clock::{BootInstant, SharedClock};
use tokio::{runtime::Handle, sync::watch, time::sleep};

use crate::{
    arbitration::StoreProgress,
    metrics::GuardMetrics,
    place::DispatchTarget,
    postgres::{BEAT, GuardMembership, PostgresError, PostgresStore, StoreClosure, StoreStatus},
    refused::AdmitError,
    register::{
        InDoubtExecution, KeyView, LivenessAnswer, QuarantineReason, QuarantineScope, QuarantineStatus,
    },
    rules::GuardConfig,
    store::CommitError,
};

/// The arbiter of such a guard, which asks the database everything.
pub(crate) struct PostgresBackend {
    postgres: PostgresStore,
    rules: GuardConfig,
    clock: SharedClock,
    metrics: GuardMetrics,
    /// The runtime of the store's thread.
    runtime: Handle,
    /// Tells the store's thread to end.
    ending: watch::Sender<StopSignal>,
    /// Closed when the store's thread has ended.
    gone: watch::Receiver<()>,
}

/// Whether the store's thread has to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Running,
    Graceful,
}

/// How often the gauges are set that need a question to the database.
const COUNT: Duration = Duration::from_secs(5);

/// Unknown operations are counted up to this number.
const MOST_COUNTED: usize = 10_000;

impl PostgresBackend {
    pub(crate) fn new(
        postgres: PostgresStore,
        rules: GuardConfig,
        clock: SharedClock,
        metrics: GuardMetrics,
        runtime: Handle,
        (ending, gone): (watch::Sender<StopSignal>, watch::Receiver<()>),
    ) -> Self {
        postgres.is_counted(metrics.clone());
        if let Some(watch) = rules.watch.clone() {
            postgres.watch(watch);
        }
        Self { postgres, rules, clock, metrics, runtime, ending, gone }
    }

    /// The lease of this guard. Bytes may leave only while it holds.
    pub(crate) fn lease(&self) -> GuardMembership {
        self.postgres.lease()
    }

    pub(crate) async fn resolve(&self, keys: &[ResourceKey], token: Token) -> Result<bool, AdmitError> {
        self.told("resolve", self.postgres.resolve(keys, token).await)
    }

    pub(crate) async fn seen(&self, key: &ResourceKey) -> Result<Option<KeyView>, AdmitError> {
        let key = key.clone();
        self.reads(move |postgres| async move { postgres.seen(&key).await }).await
    }

    pub(crate) async fn doubts(&self) -> Result<Vec<InDoubtExecution>, AdmitError> {
        self.reads(|postgres| async move { postgres.doubts().await }).await
    }

    /// The database is asked each time, because another guard may have announced a newer token that a gateway knows of.
    pub(crate) async fn reach(&self) -> Result<StoreProgress, AdmitError> {
        let (highest, database) = self
            .reads(|postgres| async move { Ok((postgres.highest().await?, postgres.physical().await?)) })
            .await?;
        Ok(StoreProgress { floor: self.postgres.status().floor, highest, database: Some(database) })
    }

    /// Over when a beat says so, and not when our clock does: the database goes by the store's time, which stands still between beats.
    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        let StoreClosure { until, why } = self.postgres.status().closed?;
        Some(QuarantineStatus { until: until.max(self.now() + BEAT), scope: QuarantineScope::EveryKey(why) })
    }

    /// The places that have to be asked whether they run.
    pub(crate) fn to_ask(&self) -> Vec<DispatchTarget> {
        self.postgres.to_ask()
    }

    pub(crate) fn seen_running(&self, place: &DispatchTarget, answer: LivenessAnswer) -> bool {
        self.postgres.seen_running(place, answer)
    }

    pub(crate) fn not_seen(&self, place: &DispatchTarget) -> bool {
        self.postgres.not_seen(place)
    }

    pub(crate) fn place(&self, keys: &[ResourceKey], token: Token) -> Option<DispatchTarget> {
        self.postgres.sent_to(keys, token)
    }

    /// Whether the lease holds, so that the other guards cannot have taken this one for dead.
    pub(crate) fn is_there(&self) -> bool {
        self.postgres.lease().holds(self.now())
    }

    pub(crate) async fn store_turned(&self) {
        drop(self.runtime.spawn(async {}).await);
    }

    /// The background work that may be late. Decisions and beats run on the store's own thread.
    pub(crate) async fn tend(&self) {
        loop {
            if let Ok(unknown) =
                self.reads(|postgres| async move { postgres.unknown(MOST_COUNTED).await }).await
            {
                self.metrics.operations_unknown(unknown);
            }
            sleep(COUNT).await;
        }
    }

    pub(crate) fn count(&self) {
        let StoreStatus { keys, in_flight, in_doubt, journal, others, closed, .. } = self.postgres.status();
        self.metrics.at_work(in_flight);
        self.metrics.in_doubt(in_doubt);
        self.metrics.not_seen(self.postgres.silent());
        self.metrics.store_keys(keys);
        self.metrics.quarantined(closed.as_ref().map_or(0, |_| keys.max(1)));
        self.metrics.rolled_back(closed.is_some_and(|closed| closed.why == QuarantineReason::RolledBack));
        self.metrics.journal(journal.entries, journal.bytes, self.rules.journal.most);
        self.metrics.guards(others + 1);
        self.metrics.lease(self.postgres.lease().until().since(self.now()));
    }

    pub(crate) async fn failed(&self) -> CommitError {
        let mut gone = self.gone.clone();
        tokio::select! {
            lost = self.postgres.lost() => CommitError(lost.to_string().into()),
            _ = gone.changed() => {
                let ending = *self.ending.borrow();
                match ending {
                    StopSignal::Running => CommitError("the store's thread has panicked".into()),
                    // The guard has left in order, so the store cannot fail any more.
                    StopSignal::Graceful => std::future::pending().await,
                }
            }
        }
    }

    pub(crate) async fn leave(&self) -> Result<(), AdmitError> {
        let left = self.there(|postgres| async move { postgres.leave().await }).await;
        let left = self.told("leave", left);
        self.ending.send_replace(StopSignal::Graceful);
        left
    }

    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    async fn reads<T, F>(&self, asked: impl FnOnce(PostgresStore) -> F) -> Result<T, AdmitError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        self.told("read", self.there(asked).await)
    }

    /// Runs a question on the store's thread. A worker may be busy, or end earlier, and must not drive a connection.
    async fn there<T, F>(&self, asked: impl FnOnce(PostgresStore) -> F) -> Result<T, PostgresError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, PostgresError>> + Send + 'static,
    {
        let answer = self.runtime.spawn(asked(self.postgres.clone())).await;
        answer.unwrap_or_else(|_| Err(PostgresError::Unreachable("the thread of the store has ended".into())))
    }

    fn told<T>(&self, op: &'static str, answer: Result<T, PostgresError>) -> Result<T, AdmitError> {
        answer.map_err(|unavailable| {
            self.metrics.store_error(op);
            AdmitError::Store(unavailable.to_string())
        })
    }
}
