//! Wakes requests of this process that wait for a key or an operation.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::sleep,
};

use super::admit_reply::ChangeFuture;

/// The notifiers of keys and operations. Several keys share a notifier, so a request may be woken for nothing
/// and check once more.
#[derive(Debug)]
pub(super) struct KeyNotifiers(Vec<Arc<Notify>>);

/// A waiting request checks again after this time at the latest, because a notice of the database may be lost.
const LOOK: Duration = Duration::from_millis(500);

const BELLS: usize = 256;

impl KeyNotifiers {
    pub(super) fn new() -> Self {
        Self((0..BELLS).map(|_| Arc::default()).collect())
    }

    /// A future that resolves at the next change. Subscribe before the check, so that no change is missed
    /// between check and wait.
    pub(super) fn subscribe(&self, name: &str) -> OwnedNotified {
        self.0[notifier_index(name)].clone().notified_owned()
    }

    pub(super) fn wake_waiters(&self, name: &str) {
        self.0[notifier_index(name)].notify_waiters();
    }

    pub(super) fn notify_all_keys(&self) {
        self.0.iter().for_each(|notifier| notifier.notify_waiters());
    }
}

fn notifier_index(name: &str) -> usize {
    let mut hash = DefaultHasher::new();
    name.hash(&mut hash);
    usize::try_from(hash.finish() % BELLS as u64).unwrap_or_default()
}

/// Returns at a notification, or after `LOOK`.
pub(super) fn wait_notified(notifier: OwnedNotified) -> ChangeFuture {
    Box::pin(async move {
        tokio::select! {
            () = notifier => {}
            () = sleep(LOOK) => {}
        }
    })
}
