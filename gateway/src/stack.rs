//! THE REQUEST PATH, one chain, top to bottom.

use std::{rc::Rc, sync::Arc};

use fencegate_policies::plan::Plan;
use tokio_util::task::TaskTracker;
use tower::ServiceBuilder;

use crate::{
    stage::{Arrived, Held},
    step::{Serve, step},
    steps::{self, fence::Fencing, limit::InFlight, route::Routing},
};

/// What the steps are made of, for one worker and one plan.
pub struct Parts {
    pub in_flight: InFlight,
    pub plan: Arc<Plan>,
    pub routing: Routing,
    pub running: TaskTracker,
    pub fencing: Fencing,
}

/// The steps of the gateway, in front of what sends a request upstream.
pub fn stack(parts: Parts, forward: impl Serve<Held>) -> impl Serve<Arrived> {
    ServiceBuilder::new()
        .layer(step(parts.in_flight, steps::limit::limit)) // too many at once: refuse before any work
        .layer(step(parts.plan.clone(), steps::admit::admit)) // what cannot be forwarded safely ends here
        .layer(step(parts.plan.clone(), steps::hygiene::hygiene)) // below: no hop-by-hop field, no foreign token
        .layer(step(parts.routing, steps::route::route)) // below: route and path are fixed
        .layer(step(parts.plan, steps::buffer::buffer)) // a slow client never holds a lock
        .layer(step((), steps::key::key)) // below: the keys are fixed
        .layer(step(parts.running, steps::detach::detach)) // below: a client that hangs up cancels nothing
        .layer_fn(Rc::new) // detach needs an owned rest
        .layer(step(parts.fencing, steps::fence::fence)) // below: the keys are ours
        .service(forward) // stamped last, nothing can strip it
}
