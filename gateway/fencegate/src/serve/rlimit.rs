//! Lets the process open as many files as it may: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit to the hard one, and returns it; `None` means that there is none.
///
/// Systems start their processes with a soft limit of 1024, for the sake of programs that use `select`. With it a
/// thousand idle clients would take every descriptor, those of connections to upstreams and to ZooKeeper among them.
pub fn allow_many() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            warn!(%error, current, "the limit of open files could not be raised");
            current
        }
    }
}

/// Warns where so many client connections would leave nothing for the others.
pub(super) fn suffice(connections: usize) {
    // A request in flight has a connection to its upstream.
    let wanted = 2 * connections as u64 + OTHERS;
    if let Some(allowed) = allow_many().filter(|allowed| *allowed < wanted) {
        warn!(
            allowed,
            wanted, connections, "fewer open files are allowed than the listener's connections need"
        );
    }
}

/// Listeners, sessions, stores, the admin listener, and pooled connections that wait.
const OTHERS: u64 = 256;
