//! Opens a guard on its store.

use std::{io, sync::Arc, thread::JoinHandle};

use fencegate_process::clock::SharedClock;

use crate::{
    alone::Alone,
    arbiter::Arbiter,
    guard::Guard,
    metrics::GuardMetrics,
    rules::Rules,
    store::{Committer, Remembered, Store, StoreError},
};

/// A guard that is ready to decide.
pub struct Opened {
    pub guard: Arc<Guard>,
    /// The state of the store at the start.
    pub remembered: Remembered,
    /// The thread that commits: it ends after [`Guard::leave`], or when the store has failed.
    pub committing: JoinHandle<()>,
}

/// Why a guard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("start the thread of the store")]
    Thread(#[from] io::Error),
}

impl Guard {
    /// `instance`: a name that no other process ever has. Run [`Guard::tend`] from now on, and end with
    /// [`Guard::leave`]; without it the next start assumes that this guard was killed.
    ///
    /// # Errors
    /// The store cannot be read, or belongs to a newer build.
    pub fn open(
        store: Arc<dyn Store>,
        rules: Rules,
        clock: SharedClock,
        instance: String,
        metrics: GuardMetrics,
    ) -> Result<Opened, NotOpened> {
        let remembered = store.load(rules.max_execution)?;
        let (committer, committing) = Committer::start(store.clone(), metrics.clone())?;
        let alone = Alone::new(rules.clone(), &remembered, store, committer, clock.clone(), metrics.clone());
        let identity = remembered.identity.clone();
        let guard = Self::new(rules, identity, instance, Arbiter::Alone(Box::new(alone)), clock, metrics);
        Ok(Opened { guard: Arc::new(guard), remembered, committing })
    }
}
