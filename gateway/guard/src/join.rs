//! Opens a guard on a shared store. The store gets a thread of its own, so that no worker can hold up a heartbeat.

use std::{io, sync::Arc, thread};

use fencegate_guard_postgres::postgres::{
    GuardTimeLimits, PostgresConfig, PostgresStore, UnusableDatabaseError,
};
use fencegate_guard_store::{config::GuardConfig, metrics::GuardMetrics};
use fencegate_process::{clock::SharedClock, randomness::Randomness};
use tokio::{
    runtime::Builder,
    select,
    sync::{oneshot, watch},
};

use crate::{
    backend::GuardBackend,
    guard::Guard,
    postgres_backend::{PostgresBackend, StoreThreadState},
};

/// A guard that has joined a shared store, and is ready to decide.
pub struct JoinedGuard {
    pub guard: Arc<Guard>,
    /// The thread of the store: it ends after [`Guard::shut_down_cleanly`].
    pub store_thread: thread::JoinHandle<()>,
}

/// The error of [`Guard::join_shared_store`].
#[derive(Debug, thiserror::Error)]
pub enum JoinSharedStoreError {
    #[error(transparent)]
    Store(#[from] UnusableDatabaseError),
    #[error("cannot start the thread of the store")]
    Thread(#[from] io::Error),
    #[error("the thread of the store has panicked")]
    Panicked,
}

/// The parts of its process that a guard uses.
pub struct GuardEnv {
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    /// A name that no other process ever has.
    pub instance: String,
    pub metrics: GuardMetrics,
}

impl Guard {
    /// Opens a guard on a shared store. Run [`Guard::run_background`] from now on, and end with
    /// [`Guard::shut_down_cleanly`]. If a guard ends without that call, the other guards declare it dead, and
    /// its dispatches in flight are in doubt.
    ///
    /// # Errors
    /// Returns an error if the database cannot be reached, or cannot be a guard's store.
    ///
    /// # Cancellation
    /// If the future is dropped, no task is left that renews the lease.
    pub async fn join_shared_store(
        place: &PostgresConfig,
        config: GuardConfig,
        env: GuardEnv,
    ) -> Result<JoinedGuard, JoinSharedStoreError> {
        let GuardEnv { clock, randomness, instance, metrics } = env;
        let metrics = metrics.with_store("postgres");
        let (opened, opening) = oneshot::channel();
        let (ending, mut ended) = watch::channel(StoreThreadState::Running);
        let (alive, gone) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let limits = GuardTimeLimits {
            send_within: config.send_within,
            max_execution: config.max_execution,
            begun_within: config.late_start_window(),
            evict_after: config.evict_after,
        };
        let named = (place.clone(), clock.clone(), instance.clone());
        let store_thread = thread::Builder::new().name("store".into()).spawn(move || {
            let (place, clock, instance) = named;
            // Dropped at the end of the thread, also after a panic, so that waiting callers learn that the store is
            // gone.
            let _alive = alive;
            runtime.block_on(async move {
                let store = PostgresStore::open(&place, limits, clock, randomness, &instance).await;
                let postgres = store.as_ref().ok().cloned();
                if opened.send(store).is_err() {
                    return;
                }
                let Some(postgres) = postgres else { return };
                select! {
                    () = postgres.run_background() => {}
                    // This also returns when the sender was dropped.
                    _ = ended.wait_for(|ending| *ending == StoreThreadState::Graceful) => {}
                }
            });
        })?;
        let postgres = opening.await.map_err(|_| JoinSharedStoreError::Panicked)??;
        let identity = postgres.identity().clone();
        let backend = PostgresBackend::new(
            postgres,
            config.clone(),
            clock.clone(),
            metrics.clone(),
            handle,
            ending,
            gone,
        );
        let guard =
            Self::new(config, identity, instance, GuardBackend::Postgres(Box::new(backend)), clock, metrics);
        Ok(JoinedGuard { guard: Arc::new(guard), store_thread })
    }
}
