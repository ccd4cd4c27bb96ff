//! Bounds the watches of a session. Callers beyond the bound look again and again instead.

use std::{cell::Cell, future::Future, pin::Pin, rc::Rc, time::Duration};

use zookeeper_client::OneshotWatcher;

/// Live watches, and the bytes of their paths.
///
/// After a reconnect the client library sets all watches again. Above 128 KiB it splits them into several requests with
/// one number, and fails on the second answer. So it fails on every further reconnect until the session expires
/// (`zookeeper-client` 0.11.2). Therefore the bytes are bounded, and callers beyond the bound poll.
#[derive(Default)]
pub(super) struct Watches {
    bytes: Cell<usize>,
    /// How many callers look instead of watching.
    looking: Cell<u32>,
}

/// Bytes of paths; well below the library's limit, because it adds to each.
const WATCHED_BYTES: usize = 96 * 1024;
/// The most looks per second, of all callers together.
const LOOKS_PER_SECOND: u32 = 1000;
const LEAST_LOOK: Duration = Duration::from_millis(50);

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

    /// Returns when it is time to look. The more callers look, the longer it takes.
    pub(super) async fn look(self: Rc<Self>) {
        let looking = Looking(self);
        looking.0.looking.set(looking.0.looking.get() + 1);
        let rest = Duration::from_secs(1) * looking.0.looking.get() / LOOKS_PER_SECOND;
        tokio::time::sleep(rest.max(LEAST_LOOK)).await;
    }
}

/// Length field of a path in the protocol.
const PER_WATCH: usize = 4;

struct Looking(Rc<Watches>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looking.set(self.0.looking.get() - 1);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.watches.bytes.set(self.watches.bytes.get() - self.bytes);
    }
}

/// Returns when the watch has fired, and gives its room back.
pub(super) fn fires_once(watcher: OneshotWatcher, room: Option<Room>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        drop(watcher.changed().await);
        drop(room);
    })
}
