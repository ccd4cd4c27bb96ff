//! Sets up the leases, where the policy has any.

use std::sync::Arc;

use fencegate_config::current_config::CurrentConfig;
use fencegate_http::network::Network;
use fencegate_leases::{
    LeaseSettings, LeaseTable,
    lease_worker::{LeaseWorker, LeaseWorkerDeps},
};
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_peers::plan_compat::PlanCompat;
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::liveness::ThreadRole;

use super::resources::ProcessResources;
use crate::{context::ProcessContext, error::ProcessError};

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
    base: &ProcessContext,
    network: N,
) -> Result<Option<LeaseSetup<N>>, ProcessError> {
    if gateway.leases.is_none() {
        return Ok(None);
    }
    let terms = LeaseSettings::open(gateway.leases.as_ref()).map_err(ProcessError::LeaseToken)?;
    let equipment = LeaseWorkerDeps {
        name: resources.name.clone(),
        keeper: lock_manager.clone(),
        clock: base.clock.clone(),
        metrics: base.metrics.leases(),
        in_force: in_force.clone(),
        agreement: compat.clone(),
        drain: base.drain.clone(),
        network,
        turning: Box::pin(base.threads.register(ThreadRole::Leases)),
        ours: resources.ours.clone(),
    };
    Ok(Some(LeaseWorker::new(equipment, terms)))
}
