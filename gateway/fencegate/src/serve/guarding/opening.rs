//! Opens the store of a guard with what it remembers, and leaves it so that the next start knows all of it.

use std::{sync::Arc, thread};

use fencegate_guard::{
    Guard, Rules,
    open::Opened,
    store::{Identity, Redb, Store},
};
use fencegate_policies::plan;
use fencegate_process::{
    randomness::{Guid, SystemRandomness},
    said::Brief,
};
use tracing::{error, info};

use super::{options::Init, trouble::GuardTrouble};
use crate::serve::base::Base;

/// A guard, and the thread that makes its words durable.
pub(super) struct OpenGuard {
    pub(super) guard: Arc<Guard>,
    pub(super) store: thread::JoinHandle<()>,
}

impl OpenGuard {
    /// `init`: the store is made, and begins there.
    ///
    /// # Errors
    /// The store is not there, is there already, or cannot be read.
    pub(super) fn open(plan: &plan::Guard, init: Option<&Init>, base: &Base) -> Result<Self, GuardTrouble> {
        let plan::Store::Redb(path) = &plan.store;
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
}

/// Writes down what only memory knows. To be called when nothing that the guard has let in is at work any more, or is
/// waited for.
///
/// # Errors
/// It was not written down: the next start takes this end for a crash.
pub(super) fn leave(guard: &Guard) -> Result<(), GuardTrouble> {
    let last = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    last.block_on(guard.leave()).map_err(|refused| GuardTrouble::NotLeft(refused.to_string()))
}

/// Waits for the end of the store's thread.
pub(super) fn closed(store: thread::JoinHandle<()>) {
    if store.join().is_err() {
        error!("the store's thread panicked");
    }
}
