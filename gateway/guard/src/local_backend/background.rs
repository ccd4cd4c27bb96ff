//! The background work of a guard with a store of its own: evicts old keys, forgets old operations, sets gauges,
//! and shuts down cleanly.

use std::time::Duration;

use fencegate_guard_store::{
    admission::{AdmissionTable, IdleKeyEvictionPass, IdleKeyEvictionStep, QuarantineScope},
    config::MOST_KEYS,
    error::DispatchRefusedError,
    store::{CleanShutdownState, InDoubtExecutionRecord, StoreMutation},
};
use fencegate_process::{clock::BootInstant, failpoint};
use tokio::time::sleep;

use super::{LocalGuardBackend, LocalGuardState};

impl LocalGuardBackend {
    pub(crate) fn start_pause_detection(&self) {
        let mut state = self.lock();
        let now = state.now;
        state.sleep_detector.start_pause_detection(now);
    }

    /// Does the background work for as long as the future is polled.
    pub(crate) async fn run_background(&self) {
        self.start_pause_detection();
        let _looking = PauseDetectionGuard(self);
        let resting = async {
            loop {
                sleep(REST).await;
                self.delist_idle_keys();
            }
        };
        let sweeping = async {
            loop {
                sleep(SWEEP).await;
                // A failure of the store is logged by the commit loop, as `guard.store_failed`.
                if self.sweep_keys_and_operations().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = resting => {}
            () = sweeping => {}
        }
    }

    /// Removes keys that are no longer at work from the store's list of keys at work. Called every [`REST`].
    pub(crate) fn delist_idle_keys(&self) {
        failpoint::pass("guard_rests");
        let mut state = self.lock();
        let now = state.now;
        let changes = state.register.delist_idle_keys(LINGER, MOST_AT_ONCE, now);
        self.commits.submit(changes);
    }

    /// Evicts keys that were not used for long, and forgets operations after their `keep`, a batch at a time. So a
    /// dispatch waits for one batch at most.
    ///
    /// # Errors
    /// Returns an error if the store has failed.
    pub(crate) async fn sweep_keys_and_operations(&self) -> Result<(), DispatchRefusedError> {
        self.wait_durable(self.commits.submit(self.store_time_change())).await?;
        let mut round = {
            let state = self.lock();
            let idle_since = state.now - self.config.evict_after;
            state.register.begin_eviction_pass(idle_since, MOST_KEYS)
        };
        while self.evict(&mut round).await? {}
        while self.forget_expired_operations().await? {}
        Ok(())
    }

    /// Evicts one batch of keys. True if there may be more.
    async fn evict(&self, round: &mut IdleKeyEvictionPass) -> Result<bool, DispatchRefusedError> {
        let (moment, more) = {
            let mut state = self.lock();
            let now = state.now;
            let IdleKeyEvictionStep { changes, more } = state.register.evict_step(round, MOST_AT_ONCE, now);
            (self.commits.submit(changes), more)
        };
        self.wait_durable(moment).await.map(|()| more)
    }

    /// Forgets one batch of operations. True if there may be more.
    async fn forget_expired_operations(&self) -> Result<bool, DispatchRefusedError> {
        let before = self.store_time_seconds();
        let outlived = match self.store.expired(before, MOST_AT_ONCE) {
            Ok(ids) => ids,
            Err(error) => {
                self.metrics.record_store_error("read");
                tracing::error!(%error, "guard.store_unreadable");
                return Ok(false);
            }
        };
        let found = outlived.len();
        let (moment, forgotten) = {
            // A reserved operation stays: it may be about to run again, and then its holder writes the entry
            // anew.
            let state = self.lock();
            let free = outlived.into_iter().filter(|id| !state.active_operations.is_reserved(id));
            let changes: Vec<_> = free.map(|id| StoreMutation::ForgetFinished { id, before }).collect();
            let forgotten = changes.len();
            (self.commits.submit(changes), forgotten)
        };
        self.wait_durable(moment).await?;
        // Reserved operations stay, so a full batch of nothing but reserved ones must not look as if there were
        // more to do.
        Ok(found == MOST_AT_ONCE && forgotten > 0)
    }

    /// Sets the gauges.
    pub(crate) fn update_gauges(&self) {
        let (doubts, silent, keys, at_work, quarantine) = {
            let LocalGuardState { register: table, now, .. } = &*self.lock();
            let quarantine = table.quarantine(*now);
            (
                table.doubt_count(),
                table.silent_doubt_count(),
                table.len(),
                table.active_key_count(),
                quarantine,
            )
        };
        self.metrics.set_silent_executions(silent);
        self.metrics.set_active_keys(at_work);
        self.metrics.set_in_doubt(doubts);
        self.metrics.set_store_keys(keys);
        self.metrics.set_quarantined(match quarantine.map(|closed| closed.scope) {
            None => 0,
            Some(QuarantineScope::Keys(closed)) => closed,
            Some(QuarantineScope::EveryKey(_)) => keys.max(1),
        });
        let taken = self.store.journal();
        self.metrics.set_journal(taken.entries, taken.bytes, self.config.journal.most);
        if let Some(disk) = self.store.disk() {
            self.metrics.set_disk(disk.free, disk.size);
        }
        // If the store cannot be read, the gauge keeps its last value, and the failure is counted elsewhere.
        if let Ok(operations) = self.count_unknown() {
            self.metrics.set_unknown_operations(operations);
        }
    }

    /// Call this after the last exchange. It writes the state that only memory has, so that the next start needs no
    /// quarantine: first the watermarks, in batches, and at the end the marker that makes them count.
    ///
    /// # Errors
    /// Returns an error if the marker was not written. The next start assumes a crash then.
    pub(crate) async fn shut_down_cleanly(&self) -> Result<(), DispatchRefusedError> {
        loop {
            let changes = {
                let mut state = self.lock();
                let now = state.now;
                state.register.delist_idle_keys(Duration::ZERO, MOST_AT_ONCE, now)
            };
            let more = changes.len() >= MOST_AT_ONCE;
            self.wait_durable(self.commits.submit(changes)).await?;
            if !more {
                break;
            }
        }
        let mut written = 0;
        loop {
            let watermarks = self.lock().register.exact_watermarks(written, MOST_AT_ONCE);
            written += watermarks.len();
            let more = watermarks.len() == MOST_AT_ONCE;
            self.wait_durable(
                self.commits.submit(watermarks.into_iter().map(StoreMutation::Watermarks).collect()),
            )
            .await?;
            if !more {
                break;
            }
        }
        let stop = {
            let LocalGuardState { register: table, now, .. } = &*self.lock();
            clean_shutdown(table, *now, self.time.max_completion_delay(*now))
        };
        let mut last = self.store_time_change();
        last.push(StoreMutation::CleanShutdown(stop));
        self.wait_durable(self.commits.submit(last)).await?;
        self.commits.close();
        Ok(())
    }
}

/// Marks the clock as unwatched when the background work ends.
struct PauseDetectionGuard<'a>(&'a LocalGuardBackend);

impl Drop for PauseDetectionGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().sleep_detector.stop_pause_detection();
    }
}

/// The interval at which old keys and operations are searched.
const SWEEP: Duration = Duration::from_secs(10);

/// The interval at which keys that are no longer at work are removed from the store's list of keys at work.
const REST: Duration = Duration::from_millis(100);

/// The most keys or operations in one transaction.
const MOST_AT_ONCE: usize = 1000;

/// How long after its last use a key counts as at work in the store. That is longer than a gateway keeps an idle tenure
/// (250 ms by default), because the next tenure needs a write anyway. It is short, because after an unclean stop all
/// keys at work have to wait.
const LINGER: Duration = Duration::from_millis(400);

fn clean_shutdown(table: &AdmissionTable, now: BootInstant, max_execution: Duration) -> CleanShutdownState {
    let mut doubts: Vec<InDoubtExecutionRecord> = table
        .open_doubts(now)
        .into_iter()
        .map(|doubt| InDoubtExecutionRecord {
            keys: doubt.keys,
            token: doubt.token,
            mode: doubt.mode,
            remaining: doubt.until.since(now),
            place: doubt.place,
        })
        .collect();
    // The drain is over, so open connections break now, but their executions may go on: they are in doubt.
    doubts.extend(table.in_flight_claims().into_iter().map(|claim| InDoubtExecutionRecord {
        keys: claim.keys.to_vec(),
        token: claim.token,
        mode: claim.mode,
        remaining: max_execution,
        place: None,
    }));
    let quarantine = table.quarantine(now).map(|closed| closed.until.since(now));
    CleanShutdownState { marks: Vec::new(), doubts, quarantine }
}
