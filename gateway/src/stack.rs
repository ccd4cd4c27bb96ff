//! THE REQUEST PATH: one chain for the gateway, one for the guard, top to bottom.

use std::{rc::Rc, sync::Arc};

use fencegate_policies::plan::Plan;
use tokio_util::task::TaskTracker;
use tower::ServiceBuilder;

use crate::{
    network::Network,
    peers::Pass,
    stage::{Arrived, Held, Hold, Keyed},
    step::{Rest, Serve, step},
    steps::{
        self,
        check::{Admission, Checking},
        claim::Claiming,
        fence::Fencing,
        hop::{Hop, HopName},
        limit::{InFlight, PerClient},
        route::Routing,
        trace::Recording,
    },
};

/// What the steps of both roles are made of, for one worker and one plan.
pub struct Parts {
    pub in_flight: InFlight,
    pub per_client: PerClient,
    pub hop: HopName,
    /// What other gateways have to show, where they are listened to.
    pub pass: Option<Pass>,
    pub plan: Arc<Plan>,
    pub running: TaskTracker,
}

/// The steps of the gateway, in front of what sends a request upstream.
pub fn gateway<N: Network>(
    parts: Parts,
    routing: Routing,
    fencing: Fencing<N>,
    forward: impl Serve<Held<Hold>>,
) -> impl Serve<Arrived> {
    let running = parts.running.clone();
    decide(parts, routing, act(running, fencing, forward))
}

/// The first half of it: all that is decided by the plan and the request alone. `fencegate explain` asks the same
/// steps, with nothing behind them.
pub fn decide(parts: Parts, routing: Routing, act: impl Serve<Keyed>) -> impl Serve<Arrived> {
    let hop = Hop { plan: parts.plan.clone(), name: parts.hop };
    let recording = Recording::of(&parts.plan.log);
    ServiceBuilder::new()
        .layer(step(parts.in_flight, steps::limit::limit)) // too many at once: refuse before any work
        .layer(step(parts.plan.clone(), steps::admit::admit)) // what cannot be forwarded safely ends here
        .layer(step(parts.plan.clone(), steps::hygiene::hygiene)) // below: no hop-by-hop field, no foreign token
        .layer(step(parts.pass, steps::forwarded::forwarded)) // another gateway shows that it is one
        .layer(step(hop, steps::hop::hop)) // our own word on the client; a request that goes round ends here
        .layer(step(recording, steps::trace::trace))
        .layer(step(parts.per_client, steps::limit::per_client)) // too many of one client
        .layer_fn(Rest::of)
        .layer(step(routing, steps::route::route)) // below: route and path are fixed
        .layer(step(parts.plan, steps::buffer::buffer)) // a slow client never holds a lock
        .layer(step((), steps::key::key)) // below: the keys are fixed
        .layer_fn(Rest::of)
        .service(act)
}

/// The second half: what holds locks and sends.
fn act<N: Network>(
    running: TaskTracker,
    fencing: Fencing<N>,
    forward: impl Serve<Held<Hold>>,
) -> impl Serve<Keyed> {
    ServiceBuilder::new()
        .layer(step(running, steps::detach::detach)) // below: a client that hangs up cancels nothing
        .layer_fn(Rc::new) // detach needs an owned rest
        .layer(step(fencing, steps::fence::fence)) // below: the keys are ours
        .layer_fn(Rest::of)
        .service(forward) // stamped last, nothing can strip it
}

/// The steps of the guard: the same, with the question whether the token is the newest in the place of the lock.
pub fn guard<N: Network>(
    parts: Parts,
    claiming: Claiming,
    checking: Checking<N>,
    forward: impl Serve<Held<Admission>>,
) -> impl Serve<Arrived> {
    let hop = Hop { plan: parts.plan.clone(), name: parts.hop };
    let recording = Recording::of(&parts.plan.log);
    ServiceBuilder::new()
        .layer(step(parts.in_flight, steps::limit::limit))
        .layer(step(parts.plan.clone(), steps::admit::admit))
        .layer(step(parts.plan.clone(), steps::hygiene::hygiene)) // the claim is taken off, and kept beside
        .layer(step(hop, steps::hop::hop))
        .layer(step(recording, steps::trace::trace))
        .layer(step(claiming.clone(), steps::claim::announce)) // what gateways ask of the guard itself ends here
        .layer(step(parts.per_client, steps::limit::per_client))
        .layer_fn(Rest::of)
        .layer(step(claiming, steps::claim::claim)) // below: the claim is read, and its ticket verified
        .layer(step(parts.plan, steps::buffer::buffer)) // a gateway that stops in the middle never holds a key
        .layer(step(parts.running, steps::detach::detach)) // below: a gateway that is killed cancels nothing
        .layer_fn(Rc::new)
        .layer(step(checking, steps::check::check)) // below: announced durably, settled, in flight
        .layer_fn(Rest::of)
        .service(forward)
}
