//! Opens a guard on its store.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use fencegate_guard_store::{
    config::GuardConfig,
    metrics::GuardMetrics,
    store::{CommitLoop, CommitQueueHandle, GuardStore, RecoveredState, StoreError},
};
use fencegate_process::clock::SharedClock;

use crate::{backend::GuardBackend, guard::Guard, local_backend::LocalGuardBackend};

/// A guard that has opened a store of its own, and is ready to decide.
pub struct OpenedGuard {
    pub guard: Arc<Guard>,
    /// The state of the store at the start.
    pub remembered: RecoveredState,
    /// The thread that commits: it ends after [`Guard::shut_down_cleanly`], or when the store has failed.
    pub commit_thread: JoinHandle<()>,
}

/// The error of [`Guard::open`].
#[derive(Debug, thiserror::Error)]
pub enum OpenGuardError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start the thread of the store")]
    Thread(#[from] io::Error),
}

/// An opened guard without a thread for commits: nothing becomes durable before the caller runs `commits`.
pub struct UnstartedGuard {
    pub guard: Arc<Guard>,
    /// The state of the store at the start.
    pub remembered: RecoveredState,
    pub commits: CommitLoop,
}

impl Guard {
    /// Opens a guard on a store of its own. `instance` is a name that no other process ever has. Run
    /// [`Guard::run_background`] from now on, and end with [`Guard::shut_down_cleanly`]; without that call the
    /// next start assumes that this guard was killed.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read or belongs to a newer build, or if its thread cannot be
    /// started.
    pub fn open(
        store: Arc<dyn GuardStore>,
        config: GuardConfig,
        clock: SharedClock,
        instance: String,
        metrics: GuardMetrics,
    ) -> Result<OpenedGuard, OpenGuardError> {
        let UnstartedGuard { guard, remembered: recovered, commits } =
            Self::open_unstarted(store, config, clock, instance, metrics)?;
        let commit_thread = thread::Builder::new().name("store".into()).spawn(move || commits.run())?;
        Ok(OpenedGuard { guard, remembered: recovered, commit_thread })
    }

    /// Opens a guard as [`Guard::open`] does, but starts no thread: for callers that run the commits themselves,
    /// such as a simulation.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read, or belongs to a newer build.
    pub fn open_unstarted(
        store: Arc<dyn GuardStore>,
        config: GuardConfig,
        clock: SharedClock,
        instance: String,
        metrics: GuardMetrics,
    ) -> Result<UnstartedGuard, StoreError> {
        let recovered = store.recover(config.max_completion_delay())?;
        let (committer, commits) = CommitQueueHandle::new(store.clone(), metrics.clone());
        let backend = LocalGuardBackend::new(
            config.clone(),
            &recovered,
            store,
            committer,
            clock.clone(),
            metrics.clone(),
        );
        let identity = recovered.identity.clone();
        let guard =
            Self::new(config, identity, instance, GuardBackend::Local(Box::new(backend)), clock, metrics);
        Ok(UnstartedGuard { guard: Arc::new(guard), remembered: recovered, commits })
    }
}
