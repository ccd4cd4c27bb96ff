//! What decides over every dispatch to one upstream, and what it keeps.

use std::{io, sync::Mutex};

use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::clock::{Boot, SharedClock};
use serde::Serialize;

use crate::{
    arbiter::Arbiter,
    metrics::GuardMetrics,
    refused::Refused,
    register::{Quarantined, Scope},
    rules::Rules,
    store::{Identity, NotCopied, NotDurable, backup::Header},
};

/// What decides over every dispatch to one upstream. Shared by all workers.
pub struct Guard {
    pub rules: Rules,
    pub identity: Identity,
    /// Of this process: a second one on a copy of the same store has another.
    pub instance: String,
    /// It has its store since then.
    pub(crate) since: Boot,
    pub(crate) arbiter: Arbiter,
    pub(crate) refusals: Mutex<Refusals>,
    clock: SharedClock,
    pub metrics: GuardMetrics,
}

/// Dispatches that came too late.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Refusals {
    /// Since the start.
    pub stale: u64,
    pub latest: Option<Stale>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub struct Stale {
    pub keys: Vec<ResourceKey>,
    pub presented: Token,
    pub newest: Token,
}

/// There is no backup.
#[derive(Debug, thiserror::Error)]
pub enum NotBackedUp {
    /// The tools of its database do that, and of all guards at once.
    #[error("the store is a database, which others have as well")]
    Shared,
    #[error(transparent)]
    NotCopied(#[from] NotCopied),
}

impl Guard {
    pub(crate) fn new(
        rules: Rules,
        identity: Identity,
        instance: String,
        arbiter: Arbiter,
        clock: SharedClock,
        metrics: GuardMetrics,
    ) -> Self {
        let since = clock.now();
        Self { rules, identity, instance, since, arbiter, refusals: Mutex::default(), clock, metrics }
    }

    pub fn now(&self) -> Boot {
        self.clock.now()
    }

    /// Nothing is admitted on these keys before then.
    pub fn quarantine(&self) -> Option<Quarantined> {
        self.arbiter.quarantine()
    }

    /// Something could be admitted now: on some keys, that is.
    pub fn lets_in(&self) -> bool {
        self.has_its_store()
            && !matches!(self.quarantine(), Some(Quarantined { scope: Scope::EveryKey(_), .. }))
    }

    /// A store that is shared may be away for a while.
    pub fn has_its_store(&self) -> bool {
        self.arbiter.is_there()
    }

    /// Does by itself, in time, what nobody asks for, for as long as it is polled. One task of the process runs this.
    pub async fn tend(&self) {
        self.arbiter.tend().await;
    }

    /// The gauges, as they are now.
    pub fn count(&self) {
        self.arbiter.count();
    }

    /// Returns when nothing can be remembered any more.
    pub async fn store_failed(&self) -> NotDurable {
        self.arbiter.failed().await
    }

    /// Writes a backup of what it remembers at this moment. It blocks, and everything else goes on meanwhile.
    ///
    /// # Errors
    /// The store is not its own, cannot be read, or nobody takes what is written.
    pub fn back_up(&self, into: &mut dyn io::Write) -> Result<Header, NotBackedUp> {
        let store = self.arbiter.own_store().ok_or(NotBackedUp::Shared)?;
        Ok(store.copy(into)?)
    }

    /// After the last exchange, so that the next start needs no quarantine.
    ///
    /// # Errors
    /// Then the next start takes this one for a crash.
    pub async fn leave(&self) -> Result<(), Refused> {
        self.arbiter.leave().await
    }
}
