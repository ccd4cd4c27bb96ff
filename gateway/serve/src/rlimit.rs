//! Raises the limit of open files, because every connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit to the hard limit, and returns the limit; `None` if there is none.
///
/// Systems start processes with a soft limit of 1024, because of programs that use `select`. With that limit a
/// thousand idle clients would take all descriptors, also those for upstreams and ZooKeeper.
pub fn raise_descriptor_limit() -> Option<u64> {
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

/// Warns if this many client connections would leave too few descriptors for other uses.
pub(super) fn warn_if_few_descriptors(connections: usize) {
    // Each request in flight also has a connection to its upstream, so every client connection counts twice.
    let wanted = 2 * connections as u64 + RESERVED_DESCRIPTORS;
    if let Some(allowed) = raise_descriptor_limit().filter(|allowed| *allowed < wanted) {
        warn!(
            allowed,
            wanted, connections, "fewer open files are allowed than the listener's connections need"
        );
    }
}

/// The descriptors for listeners, sessions, stores, the admin listener, and idle pooled connections.
const RESERVED_DESCRIPTORS: u64 = 256;
