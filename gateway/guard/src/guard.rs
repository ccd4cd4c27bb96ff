//! The guard of one upstream: decides over every dispatch to it.

use std::{io, sync::Mutex};

use fencegate_guard_store::{
    admission::{LivenessProbeAnswer, QuarantineScope, QuarantineStatus},
    config::GuardConfig,
    dispatch_target::DispatchTarget,
    error::DispatchRefusedError,
    metrics::GuardMetrics,
    store::{CommitError, StoreBackupError, StoreIdentity, backup::BackupHeader},
};
use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::clock::{BootInstant, Clock, SharedClock};
use serde::Serialize;

use crate::backend::GuardBackend;

/// The guard of one upstream. Shared by all workers.
pub struct Guard {
    pub config: GuardConfig,
    pub identity: StoreIdentity,
    /// Names this process. A second process on a copy of the same store has another name.
    pub instance: String,
    /// The instant at which this guard opened its store.
    pub(crate) since: BootInstant,
    pub(crate) backend: GuardBackend,
    pub(crate) refusals: Mutex<StaleRefusalStats>,
    clock: SharedClock,
    pub metrics: GuardMetrics,
}

/// Dispatches that were refused as stale.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StaleRefusalStats {
    /// The number of such dispatches since the start of the process.
    pub stale: u64,
    pub latest: Option<StaleDispatch>,
}

/// A dispatch that was refused as stale.
#[derive(Debug, Clone, Serialize)]
pub struct StaleDispatch {
    pub keys: Vec<ResourceKey>,
    pub presented: FencingToken,
    pub newest: FencingToken,
}

/// The error of [`Guard::back_up`].
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store is a database. It is backed up by the database's own tools, for all guards at once.
    #[error("the store is a database, which the tools of the database back up for all guards")]
    Shared,
    #[error(transparent)]
    Copy(#[from] StoreBackupError),
}

impl Guard {
    pub(crate) fn new(
        config: GuardConfig,
        identity: StoreIdentity,
        instance: String,
        backend: GuardBackend,
        clock: SharedClock,
        metrics: GuardMetrics,
    ) -> Self {
        let since = clock.now();
        Self { config, identity, instance, since, backend, refusals: Mutex::default(), clock, metrics }
    }

    pub fn now(&self) -> BootInstant {
        self.clock.now()
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The keys in quarantine, and until when; `None` if there are none.
    pub fn quarantine(&self) -> Option<QuarantineStatus> {
        self.backend.quarantine()
    }

    /// Whether a dispatch could be admitted now, on some keys at least.
    pub fn is_admitting(&self) -> bool {
        self.is_store_available()
            && !matches!(
                self.quarantine(),
                Some(QuarantineStatus { scope: QuarantineScope::EveryKey(_), .. })
            )
    }

    /// Whether the store is reachable now. A shared store may be unreachable for a while.
    pub fn is_store_available(&self) -> bool {
        self.backend.is_available()
    }

    /// Returns when the thread of the store has done all work submitted before, or has ended.
    pub async fn ping_store_thread(&self) {
        self.backend.ping_store_thread().await;
    }

    /// Does the background work for as long as it is polled. Exactly one task of the process has to run this.
    pub async fn run_background(&self) {
        self.backend.run_background().await;
    }

    /// Sets the gauges to the present values.
    pub fn update_gauges(&self) {
        self.backend.update_gauges();
    }

    /// The targets that have to be probed now, because a dispatch to them is in doubt. Empty if nothing is in doubt,
    /// or if [`GuardConfig::watch`] is not set.
    ///
    /// The caller makes a new connection for each probe, so that the probe waits behind earlier requests, and reports
    /// the result by [`Guard::record_alive`] or [`Guard::record_silent`].
    pub fn targets_to_probe(&self) -> Vec<DispatchTarget> {
        self.backend.targets_to_probe()
    }

    /// The target to which the dispatch of this token was sent. `None` if the dispatch is not in doubt, or if
    /// the target is not known.
    pub fn dispatch_target(&self, keys: &[ResourceKey], token: FencingToken) -> Option<DispatchTarget> {
        self.backend.dispatch_target(keys, token)
    }

    /// Records that a probe of this target was answered by the process that does the work, and not by an intermediary
    /// in its stead. True if the previous probe was not answered.
    pub fn record_alive(&self, target: &DispatchTarget, answer: LivenessProbeAnswer) -> bool {
        self.backend.record_alive(target, answer)
    }

    /// Records that a probe of this target was not answered. True if the previous probe was answered, or if this was
    /// the first.
    pub fn record_silent(&self, target: &DispatchTarget) -> bool {
        self.backend.record_silent(target)
    }

    /// Waits until nothing can be stored any more, and returns the cause.
    pub async fn wait_for_store_failure(&self) -> CommitError {
        self.backend.wait_for_failure().await
    }

    /// Writes a backup of the store at this moment. The call blocks its thread; the guard works on meanwhile.
    ///
    /// # Errors
    /// Returns an error if the store is shared or cannot be read, or if `into` cannot be written.
    pub fn back_up(&self, into: &mut dyn io::Write) -> Result<BackupHeader, BackupError> {
        let store = self.backend.own_store().ok_or(BackupError::Shared)?;
        Ok(store.write_backup(into)?)
    }

    /// Stops the guard in such a way that the next start needs no quarantine. Call this after the last exchange.
    ///
    /// # Errors
    /// Returns an error if the state was not written. The next start treats this stop as a crash then.
    pub async fn shut_down_cleanly(&self) -> Result<(), DispatchRefusedError> {
        self.backend.shut_down_cleanly().await
    }
}
