//! The guard's part of a worker: the guard that admits requests, and the verifier of tickets.

use std::{rc::Rc, sync::Arc};

use fencegate_guard::{Guard, ticket::Verifier};
use fencegate_http::network::Network;
use fencegate_policies::plan::{self, UpstreamId};

use crate::{
    front::{Arrived, Role},
    serve::worker::{Bench, Shared, Staffed},
    stack,
    step::Serve,
    steps::{
        arbitrate::Checking,
        claim::{Bypass, Claiming},
    },
    unbelieved::Unbelieved,
};

/// The guard's part of a worker.
#[derive(Clone)]
pub struct Guarding {
    guard: Arc<Guard>,
    tickets: Option<Arc<Verifier>>,
    bypass: Arc<Bypass>,
    pub(super) unbelieved: Arc<Unbelieved>,
}

impl Guarding {
    pub(super) fn of(plan: &plan::Guard, guard: Arc<Guard>, tickets: Option<Arc<Verifier>>) -> Self {
        let bypass = Arc::new(Bypass { unfenced: plan.unfenced.clone(), missing: plan.missing });
        Self { guard, tickets, bypass, unbelieved: Arc::default() }
    }
}

impl<N: Network> Staffed<N> for Guarding {
    const ROLE: Role = Role::Guard;

    fn stack(shared: &Shared<Self>, bench: Bench<N>) -> impl Serve<Arrived> + use<N> {
        let Bench { edition, parts, pool, forward, .. } = bench;
        let Guarding { guard, tickets, bypass, unbelieved } = shared.role.clone();
        let plan = Rc::new(edition.plan.clone());
        let claiming = Claiming { guard: guard.clone(), plan, tickets, bypass, unbelieved };
        let fleet = edition.fleets.fleet(UpstreamId(0)).clone();
        let checking =
            Checking { guard, running: parts.running.clone(), pool, fleet, budget: shared.budget.clone() };
        stack::guard(parts, claiming, checking, forward)
    }
}
