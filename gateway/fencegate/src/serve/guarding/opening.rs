//! Opens the store of a guard, and closes it so that the next start knows everything.

use std::{path::Path, sync::Arc, thread, time::Duration};

use fencegate_guard::{
    Guard, Rules,
    join::{Joined, NotJoined, Surroundings},
    open::Opened,
    postgres::{NotUsable, Place, Postgres},
    store::{Identity, Redb, Store},
};
use fencegate_policies::plan;
use fencegate_process::{
    randomness::{Guid, SystemRandomness},
    said::Brief,
};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::{not_guarding::NotGuarding, options::Init};
use crate::{
    database,
    serve::{
        base::Base,
        main_thread::MainThread,
        signals::{Demand, Signals},
    },
};

/// A guard, and the thread that writes its store.
pub(super) struct OpenGuard {
    pub(super) guard: Arc<Guard>,
    pub(super) store: thread::JoinHandle<()>,
}

impl OpenGuard {
    /// `init`: makes the store. Returns `None` if a signal asks for the end before the store is open.
    ///
    /// # Errors
    /// The store is missing, exists although `init` is given, or cannot be read.
    pub(super) fn open(
        plan: &plan::Guard,
        init: Option<&Init>,
        base: &Base,
        main: &mut MainThread,
    ) -> Result<Option<Self>, NotGuarding> {
        match &plan.store {
            plan::Store::Stateless => Err(NotGuarding::Stateless),
            plan::Store::Redb(path) => Self::alone(path, plan, init, base).map(Some),
            plan::Store::Postgres(from) => {
                let place = database::place(from)?;
                let MainThread { runtime, signals } = main;
                runtime.block_on(async {
                    tokio::select! {
                        shared = Self::shared(&place, plan, init, base) => shared.map(Some),
                        () = end_demanded(signals) => Ok(None),
                    }
                })
            }
        }
    }

    fn alone(path: &Path, plan: &plan::Guard, init: Option<&Init>, base: &Base) -> Result<Self, NotGuarding> {
        let store: Arc<dyn Store> = Arc::new(match init {
            None => Redb::open(path)?,
            Some(init) => Redb::init(path, &Identity::new(&init.ensemble, &SystemRandomness), init.floor)?,
        });
        let instance = Guid::new(&SystemRandomness).to_string();
        let (clock, metrics) = (base.clock.clone(), base.metrics.guard());
        let Opened { guard, remembered, committing } =
            Guard::open(store, Rules::of(plan), clock, instance, metrics)?;
        let closed = guard.quarantine();
        let left = closed.map(|closed| closed.until.since(guard.now()));
        info!(
            store = remembered.identity.store,
            ensemble = remembered.identity.ensemble,
            keys = remembered.marks.len(),
            floor = remembered.floor,
            new = init.is_some(),
            clean = init.is_none().then_some(remembered.clean_stop.is_some()),
            quarantine = left.map(|left| display(Brief(left))),
            closed = closed.map(|closed| display(closed.scope)),
            "guard.opened"
        );
        Ok(Self { guard, store: committing })
    }

    async fn shared(
        place: &Place,
        plan: &plan::Guard,
        init: Option<&Init>,
        base: &Base,
    ) -> Result<Self, NotGuarding> {
        if let Some(init) = init {
            let identity = Identity::new(&init.ensemble, &SystemRandomness);
            Postgres::init(place, &identity, init.floor).await?;
        }
        let Joined { guard, keeping } = joined(place, plan, base).await?;
        let closed = guard.quarantine();
        let left = closed.map(|closed| closed.until.since(guard.now()));
        info!(
            store = guard.identity.store,
            ensemble = guard.identity.ensemble,
            database = %place,
            new = init.is_some(),
            quarantine = left.map(|left| display(Brief(left))),
            closed = closed.map(|closed| display(closed.scope)),
            "guard.joined"
        );
        Ok(Self { guard, store: keeping })
    }
}

/// Waits for the database. Without it nothing is served, and it may come back by itself.
async fn joined(place: &Place, plan: &plan::Guard, base: &Base) -> Result<Joined, NotGuarding> {
    for attempt in 0_u32.. {
        let around = Surroundings {
            clock: base.clock.clone(),
            randomness: Arc::new(SystemRandomness),
            instance: Guid::new(&SystemRandomness).to_string(),
            metrics: base.metrics.guard(),
        };
        match Guard::join(place, Rules::of(plan), around).await {
            Err(NotJoined::Store(NotUsable::Unreachable { why, .. })) => {
                if attempt % TOLD == 0 {
                    warn!(database = %place, why, "guard.database_away");
                }
                sleep(AGAIN).await;
            }
            other => return Ok(other?),
        }
    }
    unreachable!("it tries for as long as the process runs")
}

/// The pause between two attempts to reach a database. Only some attempts are logged.
const AGAIN: Duration = Duration::from_millis(500);
const TOLD: u32 = 60;

async fn end_demanded(signals: &mut Signals) {
    while signals.next().await == Demand::Reload {}
}

/// Writes to the store what only memory knows. Call this when nothing that the guard has let in runs or is waited
/// for.
///
/// # Errors
/// The store was not written: the next start takes this end for a crash.
pub(super) fn leave(guard: &Guard) -> Result<(), NotGuarding> {
    let last = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    last.block_on(guard.leave()).map_err(|refused| NotGuarding::NotLeft(refused.to_string()))
}

/// Waits for the end of the store's thread.
pub(super) fn closed(store: thread::JoinHandle<()>) {
    if store.join().is_err() {
        error!("the store's thread panicked");
    }
}
