//! How much of a session is watched, and who looks instead.

use std::{cell::Cell, future::Future, pin::Pin, rc::Rc, time::Duration};

use zookeeper_client::OneshotWatcher;

/// Live watches, and the bytes of their paths.
///
/// After a reconnect the client library sets all watches again, split into several requests where they are more than
/// 128 KiB, all under one number; it then fails on the second answer, and so on every further reconnect until the
/// session expires (`zookeeper-client` 0.11.2). So the bytes are bounded, and what does not fit is looked at instead.
#[derive(Default)]
pub(super) struct Watches {
    bytes: Cell<usize>,
    /// How many look instead of watching.
    looking: Cell<u32>,
}

/// Bytes of paths; well below the library's limit, because it adds to each.
const WATCHED_BYTES: usize = 96 * 1024;
/// All that look instead of watching, together, look this often per second at most.
const LOOKS_PER_SECOND: u32 = 1000;
const LEAST_LOOK: Duration = Duration::from_millis(50);

/// A part of the bound, given back when the watch ends.
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

    /// Returns when it is time to look; the more there are, the later.
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
