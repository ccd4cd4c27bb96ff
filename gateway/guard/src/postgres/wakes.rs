//! Who waits in this process for a key or an operation, and is told to look again.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::sleep,
};

use super::look::Changed;

/// Several keys share a bell: who was told for nothing looks once more.
#[derive(Debug)]
pub(super) struct Wakes(Vec<Arc<Notify>>);

/// Who waits looks again after this long, whatever was told to whom: a word of the database may be lost.
const LOOK: Duration = Duration::from_millis(500);

const BELLS: usize = 256;

impl Wakes {
    pub(super) fn new() -> Self {
        Self((0..BELLS).map(|_| Arc::default()).collect())
    }

    /// To be taken before the look, so that no change falls between looking and waiting.
    pub(super) fn bell(&self, name: &str) -> OwnedNotified {
        self.0[at(name)].clone().notified_owned()
    }

    pub(super) fn ring(&self, name: &str) {
        self.0[at(name)].notify_waiters();
    }

    pub(super) fn ring_all(&self) {
        self.0.iter().for_each(|bell| bell.notify_waiters());
    }
}

fn at(name: &str) -> usize {
    let mut hash = DefaultHasher::new();
    name.hash(&mut hash);
    usize::try_from(hash.finish() % BELLS as u64).unwrap_or_default()
}

/// Returns when the bell was rung, or a while has passed.
pub(super) fn changed(bell: OwnedNotified) -> Changed {
    Box::pin(async move {
        tokio::select! {
            () = bell => {}
            () = sleep(LOOK) => {}
        }
    })
}
