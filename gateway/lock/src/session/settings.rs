//! What the sessions of a process are made and kept with.

use std::sync::Arc;

use fencegate_policies::plan;
use fencegate_process::{clock::SharedClock, randomness::Randomness};

use super::{complaints::Complaints, nameplate::Nameplate};
use crate::{metrics::SessionMetrics, state::Memory};

/// What a session is made with.
pub struct Settings {
    pub policy: plan::ZooKeeper,
    /// The gateway's name: part of its member node's name.
    pub gateway: String,
    /// Data of the member node.
    pub member: Nameplate,
    /// Make `meta` if there is none, before the first session of the process; never again: an ensemble that loses
    /// `meta` while we run was wiped, and would count its tokens from the beginning.
    pub init: bool,
    /// Numbers above it are not served: see [`crate::recipe::rotate`].
    pub sequence_limit: u32,
    /// What is known of the installation, by all sessions of the process.
    pub memory: Arc<Memory>,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    pub metrics: SessionMetrics,
    /// What all sessions of the process have said of why there is none.
    pub complaints: Arc<Complaints>,
}
