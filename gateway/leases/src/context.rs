//! The parts of a gateway that its leases need: its name, its locks, its plan, and the other gateways' view of
//! it.

use std::sync::Arc;

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_peers::plan_compat::PlanCompatRegistry;

/// The parts of a gateway that its leases need. Clones share all of them.
#[derive(Clone)]
pub struct LeaseContext {
    pub process: Arc<ProcessContext>,
    /// The name of the gateway.
    pub gateway: Arc<str>,
    pub locks: LockManager,
    /// The plan in force.
    pub config: CurrentConfig,
    /// Reports whether other gateways take the same locks as this one.
    pub compat: Arc<PlanCompatRegistry>,
}
