//! Starts what grants leases, where the policy has any.

use std::sync::Arc;

use fencegate_http::network::sockets::Sockets;
use fencegate_lock::tenures::keeper::Keeper;
use fencegate_policies::plan::Gateway;

use crate::{
    in_force::InForce,
    leases::{
        LeaseTerms, Leases,
        taker::{self, TakerParts},
    },
    serve::{base::Base, not_serving::NotServing},
    siblings::Ours,
};

/// # Errors
/// A file with a token cannot be used, or the machine has no thread.
pub(super) fn granted(
    gateway: &Gateway,
    (name, keeper, ours): (&Arc<str>, &Keeper, Option<&Ours>),
    in_force: &InForce,
    base: &Base,
) -> Result<Option<Arc<Leases>>, NotServing> {
    if gateway.leases.is_none() {
        return Ok(None);
    }
    let terms = LeaseTerms::open(gateway.leases.as_ref()).map_err(NotServing::LeaseToken)?;
    let equipment = TakerParts {
        name: name.clone(),
        keeper: keeper.clone(),
        clock: base.clock.clone(),
        metrics: base.metrics.leases(),
        in_force: in_force.clone(),
        drain: base.drain.clone(),
        network: Sockets,
        turning: Box::pin(base.threads.joined()),
        ours: ours.cloned(),
    };
    Ok(Some(taker::start(equipment, terms)?))
}
