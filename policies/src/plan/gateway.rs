//! What a gateway does: the process that locks a key for each request, and stamps a token.

use std::path::PathBuf;

use super::{leases::Leases, serving::Plan, tickets::Signing, zookeeper::ZooKeeper};
use crate::plan::peer_listener::PeerListener;

/// Everything a gateway does, decided. Made by [`crate::file::load`] only.
#[derive(Debug, Clone)]
pub struct Gateway {
    pub serving: Plan,
    pub zookeeper: ZooKeeper,
    /// Where the other gateways reach this one; nowhere without.
    pub peer: Option<PeerListener>,
    /// What clients may hold themselves; nothing without.
    pub leases: Option<Leases>,
    /// What tickets are signed with; none are sent without.
    pub tickets: Option<Signing>,
    /// The public keys that the tickets of other gateways are verified with, beside our own.
    pub siblings: Option<PathBuf>,
    /// A folder for what has to outlive the process, such as the highest token seen.
    pub state_dir: Option<PathBuf>,
    pub mixed: Mixed,
    /// Hash over all that decides keys and lock paths; equal in two gateways whose locks mean the same.
    pub fingerprint: u64,
}

/// What a gateway does beside others that have published another plan before it, on the routes by which both would lock one
/// resource in two ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mixed {
    /// It grants nothing there until they have gone or agree.
    #[default]
    Refuse,
    /// It serves, and says so.
    Allow,
}
