//! What grants leases, where the policy has any.

use std::sync::Arc;

use fencegate_http::network::Network;
use fencegate_lock::tenures::keeper::LockManager;
use fencegate_policies::plan::GatewayPlan;

use super::belongings::ProcessResources;
use crate::{
    agreement::PlanCompat,
    in_force::CurrentConfig,
    leases::{
        LeaseSettings, LeaseTable,
        taker::{LeaseWorker, LeaseWorkerDeps},
    },
    serve::{base::ProcessContext, not_serving::ProcessError},
    threads::ThreadRole,
};

/// The leases, and what takes their locks.
type LeaseSetup<N> = (Arc<LeaseTable>, LeaseWorker<N>);

/// # Errors
/// A file with a token cannot be used.
pub(super) fn set_up_leases<N: Network>(
    gateway: &GatewayPlan,
    (ProcessResources { name, ours, .. }, keeper): (&ProcessResources, &LockManager),
    (in_force, agreement): (&CurrentConfig, &Arc<PlanCompat>),
    base: &ProcessContext,
    network: N,
) -> Result<Option<LeaseSetup<N>>, ProcessError> {
    if gateway.leases.is_none() {
        return Ok(None);
    }
    let terms = LeaseSettings::open(gateway.leases.as_ref()).map_err(ProcessError::LeaseToken)?;
    let equipment = LeaseWorkerDeps {
        name: name.clone(),
        keeper: keeper.clone(),
        clock: base.clock.clone(),
        metrics: base.metrics.leases(),
        in_force: in_force.clone(),
        agreement: agreement.clone(),
        drain: base.drain.clone(),
        network,
        turning: Box::pin(base.threads.register(ThreadRole::Leases)),
        ours: ours.clone(),
    };
    Ok(Some(LeaseWorker::new(equipment, terms)))
}
