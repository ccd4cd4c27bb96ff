//! Bounds the watches of a session. Nodes beyond the bound are looked at instead, see [`super::looks`].

use std::{cell::Cell, future::Future, pin::Pin, rc::Rc};

use zookeeper_client::OneshotWatcher;

/// Live watches, and the bytes of their paths.
///
/// After a reconnect the client library sets all watches again. Above 128 KiB it splits them into several requests with
/// one number, and fails on the second answer. So it fails on every further reconnect until the session expires
/// (`zookeeper-client` 0.11.2). Therefore the bytes are bounded.
#[derive(Default)]
pub(super) struct Watches {
    bytes: Cell<usize>,
}

/// Bytes of paths; well below the library's limit, because it adds to each.
const WATCHED_BYTES: usize = 96 * 1024;

/// The bytes of one watch, given back when it ends.
pub(super) struct Room {
    watches: Rc<Watches>,
    bytes: usize,
}

impl Watches {
    pub(super) fn room(self: &Rc<Self>, path: &str) -> Option<Room> {
        let bytes = self.bytes.get() + path.len() + PER_WATCH;
        (bytes <= WATCHED_BYTES).then(|| {
            self.bytes.set(bytes);
            Room { watches: self.clone(), bytes: path.len() + PER_WATCH }
        })
    }
}

/// Length field of a path in the protocol.
const PER_WATCH: usize = 4;

impl Drop for Room {
    fn drop(&mut self) {
        self.watches.bytes.set(self.watches.bytes.get() - self.bytes);
    }
}

/// Returns when the watch has fired, and gives its room back.
pub(super) fn fires_once(watcher: OneshotWatcher, room: Room) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        drop(watcher.changed().await);
        drop(room);
    })
}
