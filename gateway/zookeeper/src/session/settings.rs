//! The settings of a process's sessions.

use std::sync::Arc;

use fencegate_policies::plan;
use fencegate_process::{clock::SharedClock, randomness::Randomness};

use super::{local_member::LocalMember, log_dedup::LogDedup};
use crate::{metrics::SessionMetrics, state::HighestEpochTracker};

/// The settings of a session.
pub struct SessionSettings {
    pub policy: plan::ZooKeeperSettings,
    /// The gateway's name: part of its member node's name.
    pub gateway: String,
    /// The data of the member node.
    pub member: LocalMember,
    /// Creates a missing `meta` before the first session of the process, and never later. If `meta` is removed while
    /// the process runs, the ensemble was wiped, and tokens would begin at one again.
    pub init: bool,
    /// Lock nodes with higher sequence numbers never hold; see `sequence_rollover`.
    pub sequence_limit: u32,
    /// The token history of the installation, shared by all sessions.
    pub token_history: Arc<HighestEpochTracker>,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    pub metrics: SessionMetrics,
    /// The reasons for a missing session that were logged, shared by all sessions.
    pub log_dedup: Arc<LogDedup>,
}
