//! One guard's instance in a store that several guards share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use fencegate_guard_store::{metrics::GuardMetrics, store::StoreIdentity};
use fencegate_process::{
    clock::{BootInstant, SharedClock},
    randomness::{Guid, Randomness},
};
use tokio::{sync::watch, task::AbortHandle};

use super::{
    admit_reply::DispatchName,
    config::PostgresConfig,
    connect::{PostgresConnection, PostgresConnectionPurpose, StatementError},
    error::PostgresError,
    membership::{GuardMembershipLease, GuardMembershipLostError, StoreStatus},
    name_registry::OwnedRowRefCounts,
    notifiers::KeyNotifiers,
    probed_dispatches::InDoubtUptimeTracker,
    request_queue::DbRequestQueue,
    store_clock::HeartbeatClockSamples,
};

/// The time limits of the guard that the database needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardTimeLimits {
    /// A dispatch is sent within this time after its admission, or not at all.
    pub send_within: Duration,
    /// How long after its last byte an execution without an observed end counts as over.
    pub max_execution: Duration,
    /// How long after its last byte an execution may still begin: as
    /// [`GuardConfig::late_start_window`](fencegate_guard_store::config::GuardConfig::late_start_window).
    pub begun_within: Duration,
    /// The watermarks of keys that were not used for this time are forgotten, and raise the floor.
    pub evict_after: Duration,
}

/// A store that several guards share. A clone is another handle of the same instance; with the last handle its tasks
/// end.
#[derive(Clone)]
pub struct PostgresStore {
    pub(super) instance: Arc<PostgresStoreInner>,
    _deciding: Arc<AbortOnDrop>,
}

pub(super) struct PostgresStoreInner {
    pub(super) place: PostgresConfig,
    pub(super) identity: StoreIdentity,
    pub(super) terms: GuardTimeLimits,
    /// The id of the instance's row.
    pub(super) id: i32,
    /// The name of the process.
    pub(super) name: String,
    pub(super) clock: SharedClock,
    pub(super) randomness: Arc<dyn Randomness>,
    pub(super) requests: Arc<DbRequestQueue>,
    pub(super) names: Arc<OwnedRowRefCounts>,
    pub(super) notifiers: KeyNotifiers,
    pub(super) membership: GuardMembershipLease,
    pub(super) acknowledged: DatabaseRollbackBaseline,
    /// Set if the endpoints are probed.
    pub(super) unseen: OnceLock<Mutex<InDoubtUptimeTracker>>,
    /// Set when there are metrics.
    metrics: OnceLock<GuardMetrics>,
    passed: Mutex<HeartbeatClockSamples>,
    status: Mutex<StoreStatus>,
    lost: watch::Sender<Option<GuardMembershipLostError>>,
    pub(super) beating: tokio::sync::Mutex<Option<PostgresConnection>>,
    reading: tokio::sync::Mutex<Option<Arc<PostgresConnection>>>,
}

/// The row of an instance in the store: its id, and the name of the process.
pub(super) struct GuardInstanceRow {
    pub(super) id: i32,
    pub(super) name: String,
}

/// The progress that the database has acknowledged. If the database has less later, it was rolled back.
#[derive(Debug, Default)]
pub(super) struct DatabaseRollbackBaseline {
    /// The number of statements of this instance that the database has executed.
    pub(super) acts: AtomicI64,
    /// The largest epoch that any guard has announced, as far as it was reported to this one.
    known: AtomicU64,
}

/// Ends the background tasks when it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl DatabaseRollbackBaseline {
    pub(super) fn record_acknowledged_epoch(&self, epoch: u64) {
        self.known.fetch_max(epoch, Ordering::SeqCst);
    }

    pub(super) fn highest_acknowledged_epoch(&self) -> i64 {
        i64::try_from(self.known.load(Ordering::SeqCst)).unwrap_or(i64::MAX)
    }
}

impl PostgresStore {
    pub(super) fn new(instance: Arc<PostgresStoreInner>, deciding: AbortHandle) -> Self {
        Self { instance, _deciding: Arc::new(AbortOnDrop(deciding)) }
    }

    pub fn identity(&self) -> &StoreIdentity {
        &self.instance.identity
    }

    /// The state of the store, as of the last heartbeat.
    pub fn status(&self) -> StoreStatus {
        self.instance.status().clone()
    }

    /// The lease of this guard. Bytes may be sent upstream only while the lease is valid, and only with the
    /// permission of their dispatch.
    pub fn membership(&self) -> GuardMembershipLease {
        self.instance.membership.clone()
    }

    /// Sets the metrics of the statements.
    pub fn set_metrics(&self, metrics: GuardMetrics) {
        // Only the first call counts, because a process has one guard.
        drop(self.instance.metrics.set(metrics));
    }

    /// A new name for a dispatch, by which it is found again after a lost reply.
    pub fn new_dispatch_name(&self) -> DispatchName {
        DispatchName(self.instance.new_guid())
    }

    /// The present time in whole seconds of the store's time. It is never behind that time, so a span that is
    /// measured from it never ends too early.
    pub fn store_time(&self) -> u64 {
        let now = self.instance.clock.now();
        u64::try_from(self.instance.clock_samples().latest_possible_time(now) / 1000).unwrap_or_default()
    }

    /// Returns when this process has lost its membership in the store, and has to end.
    pub async fn wait_for_loss(&self) -> GuardMembershipLostError {
        let mut lost = self.instance.lost.subscribe();
        match lost.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(lost)) => lost.clone(),
            // This cannot fail, because `self` owns the sender.
            _ => std::future::pending().await,
        }
    }
}

impl PostgresStoreInner {
    pub(super) fn new(
        place: PostgresConfig,
        identity: StoreIdentity,
        terms: GuardTimeLimits,
        row: GuardInstanceRow,
        clock: SharedClock,
        randomness: Arc<dyn Randomness>,
        sent: BootInstant,
    ) -> Self {
        Self {
            place,
            identity,
            terms,
            id: row.id,
            name: row.name,
            clock,
            randomness,
            requests: Arc::default(),
            names: Arc::default(),
            notifiers: KeyNotifiers::new(),
            membership: GuardMembershipLease::default(),
            acknowledged: DatabaseRollbackBaseline::default(),
            unseen: OnceLock::new(),
            metrics: OnceLock::new(),
            passed: Mutex::new(HeartbeatClockSamples::new(sent)),
            status: Mutex::default(),
            lost: watch::Sender::default(),
            beating: tokio::sync::Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn new_guid(&self) -> Guid {
        Guid::new(self.randomness.as_ref())
    }

    pub(super) fn clock_samples(&self) -> MutexGuard<'_, HeartbeatClockSamples> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> MutexGuard<'_, StoreStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The query with the schema in place of `$$`.
    pub(super) fn with_schema(&self, query: &str) -> String {
        query.replace("$$", &self.place.schema)
    }

    pub(super) fn with_metrics(&self, count: impl FnOnce(&GuardMetrics)) {
        if let Some(metrics) = self.metrics.get() {
            count(metrics);
        }
    }

    /// Records that the membership in the store is lost for good, and ends the lease.
    pub(super) fn mark_lost(&self, error: GuardMembershipLostError) -> PostgresError {
        self.membership.end_membership();
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert_with(|| error.clone());
            first
        });
        PostgresError::Lost(error)
    }

    pub(super) fn membership_error(&self) -> Option<GuardMembershipLostError> {
        self.lost.borrow().clone()
    }

    /// The connection for queries that change no decision.
    async fn read_connection(&self) -> Result<Arc<PostgresConnection>, PostgresError> {
        let mut slot = self.reading.lock().await;
        if let Some(connection) = &*slot
            && !connection.client().is_closed()
        {
            return Ok(connection.clone());
        }
        let opened =
            PostgresConnection::open(&self.place, PostgresConnectionPurpose::Reads, &self.name).await;
        let connection = Arc::new(opened.map_err(|error| PostgresError::Unreachable(error.to_string()))?);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Reads rows of the store. `$$` in the query stands for the schema.
    pub(super) async fn query_rows(
        &self,
        query: &str,
        with: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, PostgresError> {
        let query = self.with_schema(query);
        let connection = self.read_connection().await?;
        match connection.query(&query, with).await {
            Ok(rows) => return Ok(rows),
            Err(StatementError::Lost(_)) => *self.reading.lock().await = None,
            Err(refused) => return Err(refused.into()),
        }
        // A long idle connection may have been closed, so connect anew once.
        Ok(self.read_connection().await?.query(&query, with).await?)
    }
}
