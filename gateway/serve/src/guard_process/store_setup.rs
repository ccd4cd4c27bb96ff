//! Opens the store of a guard, and closes it so that the next start has the whole state.

use std::{path::Path, sync::Arc, thread, time::Duration};

use fencegate_config::{process_context::ProcessContext, store_config};
use fencegate_guard::{
    Guard, GuardConfig,
    join::{GuardEnv, JoinSharedStoreError, JoinedGuard},
    open::OpenedGuard,
};
use fencegate_guard_postgres::postgres::{PostgresConfig, PostgresStore, UnusableDatabaseError};
use fencegate_guard_store::store::{GuardStore, RedbStore, StoreIdentity};
use fencegate_policies::plan;
use fencegate_process::{
    display::FormattedDuration,
    randomness::{Guid, SystemRandomness},
};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::error::GuardProcessError;
use crate::{
    main_thread::MainThread,
    signals::{ProcessSignals, SignalAction},
};

/// The initial values of a new store. `fencegate era show` prints both.
#[derive(Debug, Clone)]
pub struct NewStoreParams {
    /// The guard lets in no token up to this epoch.
    pub floor: u64,
    /// The installation whose tokens the guard compares.
    pub ensemble: String,
}

/// A guard, and the thread that writes its store.
pub(super) struct GuardWithStore {
    pub(super) guard: Arc<Guard>,
    pub(super) store: thread::JoinHandle<()>,
}

impl GuardWithStore {
    /// Opens the store, or creates it if `init` is given. Returns `None` if a signal requests the end before the
    /// store is open.
    ///
    /// # Errors
    /// Returns an error if the store is missing, exists although `init` is given, or cannot be read.
    pub(super) fn open(
        plan: &plan::GuardPlan,
        init: Option<&NewStoreParams>,
        process: &ProcessContext,
        main: &mut MainThread,
    ) -> Result<Option<Self>, GuardProcessError> {
        match &plan.store {
            plan::GuardStoreLocation::Stateless => Err(GuardProcessError::Stateless),
            plan::GuardStoreLocation::Redb(path) => Self::open_local(path, plan, init, process).map(Some),
            plan::GuardStoreLocation::Postgres(from) => {
                let place = store_config::load_store_config(from)?;
                let MainThread { runtime, signals } = main;
                runtime.block_on(async {
                    tokio::select! {
                        shared = Self::open_shared(&place, plan, init, process) => shared.map(Some),
                        () = wait_shutdown_signal(signals) => Ok(None),
                    }
                })
            }
        }
    }

    fn open_local(
        path: &Path,
        plan: &plan::GuardPlan,
        init: Option<&NewStoreParams>,
        process: &ProcessContext,
    ) -> Result<Self, GuardProcessError> {
        let store: Arc<dyn GuardStore> = Arc::new(match init {
            None => RedbStore::open(path)?,
            Some(init) => {
                RedbStore::init(path, &StoreIdentity::new(&init.ensemble, &SystemRandomness), init.floor)?
            }
        });
        let instance = Guid::new(&SystemRandomness).to_string();
        let clock = process.clock.clone();
        let metrics = process.metrics.guard();
        let OpenedGuard { guard, remembered, commit_thread: committing } =
            Guard::open(store, GuardConfig::from_plan(plan), clock, instance, metrics)?;
        let closed = guard.quarantine();
        let left = closed.map(|closed| closed.until.since(guard.now()));
        info!(
            store = remembered.identity.store,
            ensemble = remembered.identity.ensemble,
            keys = remembered.marks.len(),
            floor = remembered.floor,
            new = init.is_some(),
            clean = init.is_none().then_some(remembered.clean_stop.is_some()),
            quarantine = left.map(|left| display(FormattedDuration(left))),
            closed = closed.map(|closed| display(closed.scope)),
            "guard.opened"
        );
        Ok(Self { guard, store: committing })
    }

    async fn open_shared(
        place: &PostgresConfig,
        plan: &plan::GuardPlan,
        init: Option<&NewStoreParams>,
        process: &ProcessContext,
    ) -> Result<Self, GuardProcessError> {
        if let Some(init) = init {
            let identity = StoreIdentity::new(&init.ensemble, &SystemRandomness);
            PostgresStore::init(place, &identity, init.floor).await?;
        }
        let JoinedGuard { guard, store_thread: store } = join_store(place, plan, process).await?;
        let closed = guard.quarantine();
        let left = closed.map(|closed| closed.until.since(guard.now()));
        info!(
            store = guard.identity.store,
            ensemble = guard.identity.ensemble,
            database = %place,
            new = init.is_some(),
            quarantine = left.map(|left| display(FormattedDuration(left))),
            closed = closed.map(|closed| display(closed.scope)),
            "guard.joined"
        );
        Ok(Self { guard, store })
    }
}

/// Waits for the database. Nothing can be served without it, and it may become reachable again.
async fn join_store(
    place: &PostgresConfig,
    plan: &plan::GuardPlan,
    process: &ProcessContext,
) -> Result<JoinedGuard, GuardProcessError> {
    for attempt in 0_u32.. {
        let env = GuardEnv {
            clock: process.clock.clone(),
            randomness: Arc::new(SystemRandomness),
            instance: Guid::new(&SystemRandomness).to_string(),
            metrics: process.metrics.guard(),
        };
        match Guard::join_shared_store(place, GuardConfig::from_plan(plan), env).await {
            Err(JoinSharedStoreError::Store(UnusableDatabaseError::Unreachable { why: reason, .. })) => {
                if attempt % LOG_EVERY == 0 {
                    warn!(database = %place, why = reason, "guard.database_away");
                }
                sleep(RETRY_INTERVAL).await;
            }
            other => return Ok(other?),
        }
    }
    unreachable!("it tries for as long as the process runs")
}

/// The pause between two attempts to reach a database. Only some attempts are logged.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const LOG_EVERY: u32 = 60;

async fn wait_shutdown_signal(signals: &mut ProcessSignals) {
    while signals.next().await == SignalAction::Reload {}
}

/// Writes to the store the state that is only in memory. Must be called when no admitted request runs or waits.
///
/// # Errors
/// Returns an error if the store was not written: the next start then treats this end as a crash.
pub(super) fn flush(guard: &Guard) -> Result<(), GuardProcessError> {
    let last = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    last.block_on(guard.shut_down_cleanly())
        .map_err(|refused| GuardProcessError::LeaveStore(refused.to_string()))
}

/// Waits for the end of the store's thread.
pub(super) fn join_store_thread(store: thread::JoinHandle<()>) {
    if store.join().is_err() {
        error!("the store's thread panicked");
    }
}
