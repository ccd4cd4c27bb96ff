//! Keeps the rows of unseen doubts ahead of the store's time. A doubt is unseen while its endpoint still has to
//! be seen running.
//!
//! Each unseen doubt has its rows in the database, as every doubt has, with a time at which it is over. This
//! guard moves that time ahead before each of its heartbeats, so the rows last longer than the time for which
//! the endpoint still has to be seen running. It changes no other rows: a doubt that an operator or another
//! guard has ended stays ended. If this guard ends, the rows end by the store's time alone.

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

/// Moves the ends of the rows of unseen doubts ahead, and returns the rows that still exist. Rows that are
/// locked are about to be changed by the statement that holds the lock, so they are left for the next heartbeat:
/// waiting for them could be a deadlock. The names of all existing rows are read without a lock. A row without
/// an end is one whose end a failover has lost, or whose end is on its way.
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
    /// Lets the endpoints be probed from now on: see [`PostgresStore::require_uptime_for_doubt`].
    pub fn start_probing(&self, watch: LivenessProbeConfig) {
        // Only the first call counts, because a process has one guard.
        drop(self.instance.unseen.set(Mutex::new(InDoubtUptimeTracker::new(watch))));
    }

    /// Keeps the dispatch in doubt until its endpoint was seen running for `longest` from `since` on. Without
    /// [`PostgresStore::start_probing`] the doubt ends by the store's time. The database is updated in the
    /// background.
    ///
    /// `target`: the endpoint or address to which the dispatch was sent, if known.
    pub fn require_uptime_for_doubt(
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

    /// The target to which this guard has sent the dispatch of this token. `None` if the dispatch is not in
    /// doubt, or if the target is not known.
    pub fn dispatch_target(&self, keys: &[ResourceKey], token: FencingToken) -> Option<DispatchTarget> {
        self.instance.probed_doubts()?.dispatch_target(keys, token)
    }

    /// The number of this guard's executions in doubt whose remaining time does not get shorter, because their
    /// endpoint does not answer.
    pub fn silent_doubt_count(&self) -> usize {
        self.instance.probed_doubts().map(|unseen| unseen.silent_doubt_count()).unwrap_or_default()
    }

    /// The target of the dispatch of this name, and whether its endpoint is silent. `None` if it is no dispatch
    /// of this guard with a probed endpoint.
    pub(super) fn find_probed_doubt(&self, name: &str) -> Option<(Option<DispatchTarget>, bool)> {
        self.instance.probed_doubts()?.find(name)
    }
}

impl PostgresStoreInner {
    /// The unseen doubts of this guard; `None` if the endpoints are not probed.
    fn probed_doubts(&self) -> Option<MutexGuard<'_, InDoubtUptimeTracker>> {
        Some(self.unseen.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Moves the end of each unseen doubt ahead of its remaining time, by the time after which a guard without
    /// heartbeats is declared dead. Call this before each heartbeat, and send no heartbeat if it fails:
    /// otherwise the guard would keep the lease while its rows run out. Doubts whose rows are gone were resolved
    /// by an operator or a probe, and are forgotten.
    ///
    /// # Errors
    /// Returns an error if it is not known whether any end was moved.
    ///
    /// # Cancellation
    /// If the future is dropped, it is not known whether any end was moved.
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
