//! Keeps the rows of unseen doubts ahead of the store's time.
//!
//! Each of these doubts has its rows in the database, as every doubt has, with a time at which it is over. This guard
//! moves that time ahead before each of its heartbeats, so the rows outlast what is left to be seen. It changes no
//! other rows: a doubt that an operator or another guard has ended stays ended. Without this guard the rows end by
//! the store's time alone.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_guard_store::{
    admission::{DispatchEnd, LivenessProbeAnswer, LivenessProbeConfig},
    dispatch_target::DispatchTarget,
};
use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::clock::BootInstant;

use super::{
    admit_reply::InFlightDispatch,
    connect::{PostgresConnection, StatementError, millis},
    heartbeat::DEAD,
    instance::{PostgresStore, PostgresStoreInner},
    probed_dispatches::InDoubtUptimeTracker,
    request::DbRequest,
};

/// Moves the ends of these rows ahead, and returns the ones that still exist. Rows that are locked are about to be
/// changed by the statement that holds the lock, so they are left for the next heartbeat: waiting for them could be a
/// deadlock. The names of all existing rows are read without a lock. A row without an end is one whose end a failover
/// has lost, or whose end is on its way.
const PROLONG: &str = "WITH unseen AS (SELECT * FROM unnest($2::text[], $3::bigint[]) AS u (id, remains)),
    there AS (
        SELECT DISTINCT w.id FROM $$.at_work w JOIN unseen u ON u.id = w.id WHERE w.instance = $1),
    free AS (
        SELECT w.key, w.id, u.remains FROM $$.at_work w JOIN unseen u ON u.id = w.id
        WHERE w.instance = $1 FOR UPDATE OF w SKIP LOCKED),
    prolonged AS (
        UPDATE $$.at_work w SET until = greatest(w.until, s.time + $4::bigint + f.remains) FROM free f, $$.store s
        WHERE w.key = f.key AND w.id = f.id RETURNING w.id)
    SELECT coalesce(array_agg(id), '{}') FROM there";

impl PostgresStore {
    /// Probes the endpoints from now on: see [`PostgresStore::watch_doubt`].
    pub fn start_probing(&self, watch: LivenessProbeConfig) {
        // Only the first call counts, because a process has one guard.
        drop(self.instance.unseen.set(Mutex::new(InDoubtUptimeTracker::new(watch))));
    }

    /// Keeps the dispatch in doubt until its endpoint was seen running for `longest` from `since` on. Without
    /// [`PostgresStore::start_probing`] it ends by the store's time. The database is updated in the background.
    ///
    /// `target`: where it was sent, if known.
    pub fn watch_doubt(
        &self,
        dispatch: &InFlightDispatch,
        target: Option<DispatchTarget>,
        longest: Duration,
        since: BootInstant,
    ) {
        let at_least = longest + DEAD;
        let ended = DispatchEnd::InDoubt { until: since + longest };
        let Some(mut unseen) = self.instance.probed_doubts() else {
            return self.end_dispatch(dispatch, ended);
        };
        let end = DbRequest::End { dispatch: dispatch.clone(), ended, at_least, operation: None };
        self.instance.requests.enqueue_detached(end);
        unseen.add(dispatch, target, longest, since);
    }

    /// The targets that have to be probed.
    pub fn targets_to_probe(&self) -> Vec<DispatchTarget> {
        self.instance.probed_doubts().map(|mut unseen| unseen.targets_to_probe()).unwrap_or_default()
    }

    /// Records that the process at this target has answered. True if the previous probe was not answered.
    pub fn record_alive(&self, target: &DispatchTarget, answer: LivenessProbeAnswer) -> bool {
        let Some(mut unseen) = self.instance.probed_doubts() else { return false };
        let was_silent = unseen.is_silent(target);
        let over = unseen.record_alive(target, answer);
        drop(unseen);
        over.iter().for_each(|dispatch| self.end_dispatch(dispatch, DispatchEnd::Known));
        was_silent
    }

    /// Records that a probe of this target was not answered. True if the previous probe was answered, or if this was
    /// the first.
    pub fn record_silent(&self, target: &DispatchTarget) -> bool {
        self.instance.probed_doubts().is_some_and(|mut unseen| unseen.record_silent(target))
    }

    /// Where this guard has sent the dispatch of this token, if it is in doubt and that is known.
    pub fn dispatch_target(&self, keys: &[ResourceKey], token: FencingToken) -> Option<DispatchTarget> {
        self.instance.probed_doubts()?.dispatch_target(keys, token)
    }

    /// The number of this guard's executions in doubt whose time stands still, because their endpoint does not
    /// answer.
    pub fn silent_doubt_count(&self) -> usize {
        self.instance.probed_doubts().map(|unseen| unseen.silent_doubt_count()).unwrap_or_default()
    }

    /// Where the dispatch of this name was sent, and whether that endpoint is silent. `None` if it is no dispatch of
    /// this guard with a probed endpoint.
    pub(super) fn find_probed_doubt(&self, name: &str) -> Option<(Option<DispatchTarget>, bool)> {
        self.instance.probed_doubts()?.find(name)
    }
}

impl PostgresStoreInner {
    /// `None` if the endpoints are not probed.
    fn probed_doubts(&self) -> Option<MutexGuard<'_, InDoubtUptimeTracker>> {
        Some(self.unseen.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Moves the ends of the unseen doubts ahead of what is left of them, by as much as a guard without heartbeats
    /// lives on. Call it before each heartbeat, and send no heartbeat if it fails: otherwise the guard would keep the
    /// lease while its rows run out. Doubts whose rows are gone were resolved by an operator or a probe, and are
    /// forgotten.
    ///
    /// # Errors
    /// It is not known whether anything was moved.
    ///
    /// # Cancellation
    /// The same as for an error.
    pub(super) async fn extend_doubts(&self, connection: &PostgresConnection) -> Result<(), StatementError> {
        let left = self
            .probed_doubts()
            .map(|unseen| unseen.remaining_time_by_dispatch().collect::<Vec<_>>())
            .unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        let (names, left): (Vec<_>, Vec<_>) =
            left.into_iter().map(|(name, left)| (name, millis(left + DEAD))).unzip();
        let slack = millis(self.clock_samples().max_unwritten_clock_time(self.clock.now()));
        let row =
            connection.query_one(&self.with_schema(PROLONG), &[&self.id, &names, &left, &slack]).await?;
        let there: HashSet<String> = row.get::<_, Vec<String>>(0).into_iter().collect();
        // Only the doubts of this query: others may have come meanwhile.
        let gone: HashSet<String> = names.into_iter().filter(|name| !there.contains(name)).collect();
        if let Some(mut unseen) = self.probed_doubts() {
            unseen.forget_dispatches(&gone);
        }
        Ok(())
    }
}
