//! The state of a gateway that its admin listener shows.

use std::sync::Arc;

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_leases::LeaseTable;
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_metrics::{hot_keys::HotKeys, request_tracker::RequestTracker};
use fencegate_process::key_redaction::KeyRedaction;
use fencegate_zookeeper::session::active_session::SessionState;

use super::{auth::CsrfToken, command::AdminCommandSender, history::LatencyHistory};

/// The state of a gateway that its admin listener shows, and the means to control the gateway.
#[derive(Clone)]
pub struct GatewayAdminState {
    /// The name of the gateway.
    pub name: Arc<str>,
    pub process: Arc<ProcessContext>,
    pub locks: LockManager,
    pub config: CurrentConfig,
    pub hot_keys: HotKeys,
    /// The requests of each key.
    pub requests: Arc<RequestTracker>,
    pub history: LatencyHistory,
    /// The public keys of the tickets of this gateway, for guards to fetch.
    pub jwks: Option<Arc<str>>,
    pub commands: AdminCommandSender,
    /// `None` if the process was started without leases.
    pub leases: Option<Arc<LeaseTable>>,
    pub csrf: CsrfToken,
}

impl GatewayAdminState {
    /// The reason for which no lock can be granted now; `None` if one can.
    pub(super) fn not_ready_reason(&self) -> Option<String> {
        if self.process.drain.is_cancelled() {
            return Some("draining".into());
        }
        if let Some(hung) = self.process.threads.unready_thread() {
            return Some(hung);
        }
        (!self.locks.is_ready()).then(|| match self.locks.session_state() {
            SessionState::NoSession(why) => format!("no ZooKeeper session: {why}"),
            SessionState::NotInitialised(why) => format!("FG0506: {why}"),
            // The message begins with its code.
            SessionState::RolledBack(why) => why.to_string(),
            SessionState::Active { connected: false, .. } => "the connection to ZooKeeper is lost".into(),
            SessionState::Active { connected: true, .. } => "the ZooKeeper session is not proven yet".into(),
        })
    }

    pub(super) fn key_redaction(&self) -> KeyRedaction {
        KeyRedaction(self.config.plan().serving.log.keys)
    }
}
