//! Sets up the leases, where the policy has any.

use std::sync::Arc;

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_http::network::Network;
use fencegate_leases::{
    LeaseSettings, LeaseTable,
    lease_worker::{LeaseWorker, LeaseWorkerConfig},
};
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_peers::plan_compat::PlanCompat;
use fencegate_policies::plan::GatewayPlan;

use super::resources::ProcessResources;
use crate::error::ProcessError;

/// The leases, and the worker that takes their locks.
type LeaseSetup<N> = (Arc<LeaseTable>, LeaseWorker<N>);

/// # Errors
/// A file with a token cannot be used.
pub(super) fn set_up_leases<N: Network>(
    gateway: &GatewayPlan,
    resources: &ProcessResources,
    lock_manager: &LockManager,
    in_force: &CurrentConfig,
    compat: &Arc<PlanCompat>,
    process: &Arc<ProcessContext>,
    network: N,
) -> Result<Option<LeaseSetup<N>>, ProcessError> {
    if gateway.leases.is_none() {
        return Ok(None);
    }
    let terms = LeaseSettings::open(gateway.leases.as_ref()).map_err(ProcessError::LeaseToken)?;
    let config = LeaseWorkerConfig {
        process: process.clone(),
        name: resources.name.clone(),
        keeper: lock_manager.clone(),
        in_force: in_force.clone(),
        agreement: compat.clone(),
        network,
        ours: resources.ours.clone(),
    };
    Ok(Some(LeaseWorker::new(config, terms)))
}
