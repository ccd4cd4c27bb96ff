//! The background work of a guard with a shared store: renews its lease, listens for changes, forgets old keys
//! and operations, and shuts down cleanly.

use std::{sync::atomic::Ordering, time::Duration};

use fencegate_guard_store::{admission::QuarantineReason, store::JournalSize};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::{
    connect::{PostgresConnection, PostgresConnectionPurpose, after_millis, millis},
    error::PostgresError,
    instance::{PostgresStore, PostgresStoreInner},
    membership::{GuardMembershipLostError, StoreQuarantine, StoreStatus, SweepStats},
    migrate::FORMAT,
    request::DbRequest,
};

/// The interval at which the lease is renewed and the store's time moved.
pub const BEAT: Duration = Duration::from_millis(500);

/// The length of a lease, from the moment at which its renewal was requested. After its end a guard sends
/// nothing.
const LEASE: Duration = Duration::from_secs(3);

/// Other guards declare a guard dead when this much of the store's time has passed since its last renewal.
pub(super) const DEAD: Duration = Duration::from_secs(4);

/// The interval at which old keys and operations are searched.
const SWEEP: Duration = Duration::from_secs(10);

/// The most keys or operations in one transaction.
const MOST_AT_ONCE: i32 = 1000;

/// The most keys that are kept. Beyond that the least recently used ones are evicted early.
const MOST_KEYS: usize = 1_000_000;

/// The longest time for which a guard that shuts down waits until the database has all its requests.
const LEAVE: Duration = Duration::from_secs(3);

/// The reply to a heartbeat, from `sql/tend.sql`.
#[derive(Debug, Deserialize)]
struct HeartbeatReply {
    time: i64,
    tick: i64,
    alive: bool,
    format: u32,
    store: String,
    floor: u64,
    era: u64,
    highest: u64,
    left: Option<i64>,
    why: Option<String>,
    entries: i64,
    bytes: i64,
    others: usize,
    flying: usize,
    doubts: usize,
    longest: u64,
}

impl PostgresStore {
    /// Moves the ends of the unseen doubts ahead, renews the lease, moves the store's time, and declares guards dead
    /// that did not renew. [`PostgresStore::run_background`] calls this in time.
    ///
    /// # Errors
    /// Returns an error if the lease was not renewed.
    pub async fn send_heartbeat(&self) -> Result<(), PostgresError> {
        let instance = &*self.instance;
        if let Some(lost) = instance.membership_error() {
            return Err(PostgresError::Lost(lost));
        }
        let mut slot = instance.beating.lock().await;
        let connection = match slot.take() {
            Some(connection) => connection,
            None => {
                let connection = instance.connect_for_heartbeat().await?;
                // The connection for decisions has to be opened, even if there is no request: when it is,
                // dispatches whose ends the database has lost are ended.
                instance.requests.enqueue_detached(DbRequest::Nothing);
                connection
            }
        };
        instance.extend_doubts(&connection).await?;
        let sent = instance.clock.now();
        let (tick, passed) = instance.clock_samples().next_clock_advance(sent);
        let passed = i64::try_from(passed.as_millis()).unwrap_or_default();
        let query = instance.with_schema("SELECT $$.beat($1, $2, $3, $4)");
        let row = connection.query_one(&query, &[&instance.id, &tick, &passed, &millis(DEAD)]).await?;
        let answered = instance.clock.now();
        instance.with_metrics(|metrics| metrics.observe_store_duration("beat", answered.since(sent)));
        *slot = Some(connection);
        drop(slot);
        let reply: HeartbeatReply = serde_json::from_str(row.get(0))
            .map_err(|error| PostgresError::Refused(format!("a beat: {error}")))?;
        if reply.store != instance.identity.store {
            return Err(instance.mark_lost(GuardMembershipLostError::Another(reply.store)));
        } else if reply.format > FORMAT {
            return Err(instance.mark_lost(GuardMembershipLostError::Newer(reply.format)));
        } else if !reply.alive {
            return Err(instance.mark_lost(GuardMembershipLostError::Dead));
        }
        instance.clock_samples().record_heartbeat(sent, answered, reply.time, reply.tick);
        instance.acknowledged.record_acknowledged_epoch(reply.highest);
        instance.membership.extend_membership(sent + LEASE);
        instance.record_heartbeat(&reply);
        Ok(())
    }

    /// Sends heartbeats, listens and sweeps for as long as it is polled. One task of the process runs it.
    pub async fn run_background(&self) {
        let beating = async {
            loop {
                if let Err(unavailable) = self.send_heartbeat().await {
                    self.instance.with_metrics(|metrics| metrics.record_store_error("beat"));
                    tracing::warn!(error = %unavailable, "guard.store_beat");
                }
                sleep(BEAT).await;
            }
        };
        let sweeping = async {
            loop {
                sleep(SWEEP).await;
                if let Err(unavailable) = self.sweep(MOST_KEYS).await {
                    tracing::warn!(error = %unavailable, "guard.store_sweep");
                }
            }
        };
        tokio::join!(beating, sweeping, self.instance.listen_for_changes());
    }

    /// Evicts old keys and forgets old operations, a batch at a time. So a dispatch waits for one batch at most.
    ///
    /// # Errors
    /// Returns an error if a query has failed. The rest is left for the next sweep.
    pub async fn sweep(&self, most_keys: usize) -> Result<SweepStats, PostgresError> {
        let instance = &*self.instance;
        let now = instance.clock.now();
        let unused =
            instance.clock_samples().earliest_possible_time(now) - millis(instance.terms.evict_after);
        let most = i64::try_from(most_keys).unwrap_or(i64::MAX);
        instance.query_rows("SELECT $$.tidy()", &[]).await?;
        let mut swept = SweepStats::default();
        loop {
            let rows =
                instance.query_rows("SELECT $$.evict($1, $2, $3)", &[&unused, &most, &MOST_AT_ONCE]).await?;
            let forgotten = first_count(&rows);
            swept.keys += forgotten;
            if forgotten == 0 {
                break;
            }
        }
        loop {
            let rows = instance.query_rows("SELECT $$.outlive($1)", &[&MOST_AT_ONCE]).await?;
            let forgotten = first_count(&rows);
            swept.operations += forgotten;
            if forgotten == 0 {
                break;
            }
        }
        let keys = first_count(&instance.query_rows("SELECT count(*) FROM $$.key", &[]).await?);
        instance.status().keys = usize::try_from(keys).unwrap_or_default();
        Ok(swept)
    }

    /// Ends the membership in the store. Call this after the last exchange: dispatches in flight are now in
    /// doubt, and everything else is released.
    ///
    /// # Errors
    /// Returns an error if the database was not updated. The other guards declare this one dead some seconds
    /// later.
    pub async fn shut_down_cleanly(&self) -> Result<(), PostgresError> {
        let instance = &*self.instance;
        instance.requests.close();
        if timeout(LEAVE, instance.requests.wait_idle()).await.is_err() {
            tracing::warn!("guard.store_leave: not every result could be written to the store in time");
        }
        // The database adds the longest execution by itself, but not the time in which an execution may still
        // begin.
        let slack = millis(
            instance.clock_samples().max_unwritten_clock_time(instance.clock.now())
                + instance.terms.begun_within,
        );
        instance.membership.end_membership();
        instance.query_rows("SELECT $$.leave($1, $2)", &[&instance.id, &slack]).await.map(drop)
    }
}

fn first_count(rows: &[tokio_postgres::Row]) -> u64 {
    let number = rows.first().map(|row| row.get::<_, i64>(0)).unwrap_or_default();
    u64::try_from(number).unwrap_or_default()
}

impl PostgresStoreInner {
    /// A new connection for heartbeats. A database that was rolled back gets this guard's announced epochs before any
    /// heartbeat: a guard without requests has no other occasion, and the other guards do not have its latest
    /// announcements.
    async fn connect_for_heartbeat(&self) -> Result<PostgresConnection, PostgresError> {
        let opened =
            PostgresConnection::open(&self.place, PostgresConnectionPurpose::Heartbeat, &self.name).await;
        let connection = opened.map_err(|error| PostgresError::Unreachable(error.to_string()))?;
        let store = connection.query_one(&self.with_schema("SELECT store FROM $$.store"), &[]).await?;
        if store.get::<_, &str>(0) != self.identity.store {
            return Err(self.mark_lost(GuardMembershipLostError::Another(store.get(0))));
        }
        let acts = self.acknowledged.acts.load(Ordering::SeqCst);
        let remembers = self.with_schema("SELECT $$.remembers($1, $2, $3)");
        let rolled_back = connection
            .query_one(&remembers, &[&self.id, &acts, &self.acknowledged.highest_acknowledged_epoch()])
            .await?;
        if rolled_back.get(0) {
            tracing::warn!("guard.store_rolled_back");
        }
        Ok(connection)
    }

    fn record_heartbeat(&self, reply: &HeartbeatReply) {
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        let now = self.clock.now();
        let mut status = self.status();
        let reason = match reply.why.as_deref() {
            Some("rolled-back") => QuarantineReason::RolledBack,
            _ => QuarantineReason::NewStore,
        };
        *status = StoreStatus {
            floor: reply.floor,
            era: reply.era,
            time: number(reply.time / 1000),
            closed: reply.left.map(|left| StoreQuarantine { until: after_millis(now, left), why: reason }),
            journal: JournalSize { entries: number(reply.entries), bytes: number(reply.bytes) },
            others: reply.others,
            in_flight: reply.flying,
            in_doubt: reply.doubts,
            keys: status.keys,
            longest_execution: Duration::from_millis(reply.longest),
        };
    }

    /// Wakes waiting requests when a dispatch ends at another guard. If a notice is lost, the requests check
    /// again after a time limit.
    async fn listen_for_changes(&self) {
        loop {
            match PostgresConnection::open(&self.place, PostgresConnectionPurpose::Notifications, &self.name)
                .await
            {
                Err(error) => tracing::debug!(%error, "guard.store_listen"),
                Ok(mut connection) => {
                    if connection.client().batch_execute("LISTEN fencegate").await.is_ok() {
                        while let Some(notice) = connection.notices.recv().await {
                            // The first letter tells keys from operations.
                            match notice.get(1..) {
                                Some(name) if !name.is_empty() => self.notifiers.wake_waiters(name),
                                _ => self.notifiers.notify_all_keys(),
                            }
                        }
                    }
                }
            }
            self.notifiers.notify_all_keys();
            sleep(BEAT).await;
        }
    }
}
