//! Bounds the watches of a session. Nodes beyond the bound are polled instead, see [`super::polled_watch`].

use std::{cell::Cell, future::Future, pin::Pin, rc::Rc};

use zookeeper_client::OneshotWatcher;

/// Live watches, and the bytes of their paths.
///
/// After a reconnect the client library sets all watches again. Above 128 KiB it splits them into several requests with
/// one id, and fails on the second answer. So it fails on every further reconnect until the session expires
/// (`zookeeper-client` 0.11.2). Therefore the bytes are bounded.
#[derive(Default)]
pub(super) struct WatchBudget {
    bytes: Cell<usize>,
}

/// Bytes of paths; well below the library's limit, because it adds to each.
const MAX_WATCHED_BYTES: usize = 96 * 1024;

/// The bytes of one watch, released when it ends.
pub(super) struct WatchPermit {
    watches: Rc<WatchBudget>,
    bytes: usize,
}

impl WatchBudget {
    pub(super) fn try_acquire(self: &Rc<Self>, path: &str) -> Option<WatchPermit> {
        let bytes = self.bytes.get() + path.len() + BYTES_PER_WATCH;
        (bytes <= MAX_WATCHED_BYTES).then(|| {
            self.bytes.set(bytes);
            WatchPermit { watches: self.clone(), bytes: path.len() + BYTES_PER_WATCH }
        })
    }
}

/// Length field of a path in the protocol.
const BYTES_PER_WATCH: usize = 4;

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.watches.bytes.set(self.watches.bytes.get() - self.bytes);
    }
}

/// Returns when the watch has fired, and releases its bytes.
pub(super) fn wait_fired(watcher: OneshotWatcher, room: WatchPermit) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        drop(watcher.changed().await);
        drop(room);
    })
}
