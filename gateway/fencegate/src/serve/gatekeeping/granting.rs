//! What grants leases, where the policy has any.

use std::sync::Arc;

use fencegate_http::network::Network;
use fencegate_lock::tenures::keeper::Keeper;
use fencegate_policies::plan::Gateway;

use super::belongings::Belongings;
use crate::{
    agreement::Agreement,
    in_force::InForce,
    leases::{
        LeaseTerms, Leases,
        taker::{Taker, TakerParts},
    },
    serve::{base::Base, not_serving::NotServing},
    threads::Work,
};

/// The leases, and what takes their locks.
type Grants<N> = (Arc<Leases>, Taker<N>);

/// # Errors
/// A file with a token cannot be used.
pub(super) fn granted<N: Network>(
    gateway: &Gateway,
    (Belongings { name, ours, .. }, keeper): (&Belongings, &Keeper),
    (in_force, agreement): (&InForce, &Arc<Agreement>),
    base: &Base,
    network: N,
) -> Result<Option<Grants<N>>, NotServing> {
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
        agreement: agreement.clone(),
        drain: base.drain.clone(),
        network,
        turning: Box::pin(base.threads.joined(Work::Leases)),
        ours: ours.clone(),
    };
    Ok(Some(Taker::of(equipment, terms)))
}
