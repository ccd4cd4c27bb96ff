//! THE REQUEST PATH: one chain for the gateway, one for the guard, one for a filter, top to bottom.

use std::{rc::Rc, sync::Arc};

use fencegate_http::{buffered::Budget, network::Network};
use fencegate_lock::pass::Pass;
use fencegate_policies::plan::Plan;
use tokio_util::task::TaskTracker;
use tower::ServiceBuilder;

use crate::{
    front::Arrived,
    hop_name::HopName,
    in_flight::InFlight,
    step::{Rest, Serve, look, step},
    steps::{
        self,
        arbitrate::{Admission, Checking},
        buffer::Buffering,
        claim::Claiming,
        fence::{Fencing, HeldTenure},
        filter::Filtering,
        hop::Hop,
        key::Keyed,
        lease_questions::LeaseQuestions,
        limit::PerClient,
        permitted::Permitted,
        route::Routing,
        screen::Screening,
    },
    ticketing::Ticketing,
    trace::Recording,
};

/// What the steps of both roles are made of, for one worker and one plan.
pub struct Parts {
    pub in_flight: InFlight,
    pub per_client: PerClient,
    pub hop: HopName,
    /// For bodies that are here in full.
    pub budget: Budget,
    /// Signs what services show that call back, where that is allowed.
    pub callers: Option<Arc<Ticketing>>,
    /// What is asked about leases, where there are any.
    pub leases: Option<LeaseQuestions>,
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
    forward: impl Serve<Permitted<Rc<HeldTenure>>>,
) -> impl Serve<Arrived> {
    let running = parts.running.clone();
    decide(parts, routing, act(running, fencing, forward))
}

/// The first half of it: all that is decided by the plan and the request alone. `fencegate explain` asks the same
/// steps, with nothing behind them.
pub fn decide(parts: Parts, routing: Routing, act: impl Serve<Keyed>) -> impl Serve<Arrived> {
    let hop = Hop { plan: parts.plan.clone(), name: Rc::new(parts.hop), callers: parts.callers };
    let recording = Recording::of(&parts.plan.log);
    ServiceBuilder::new()
        .layer(look(parts.in_flight, steps::limit::limit)) // too many at once: refuse before any work
        .layer(look(parts.pass.clone(), steps::sibling::prove)) // another gateway asks whether we are who it means
        .layer(look(Screening::by(&parts.plan), steps::screen::screen)) // what cannot be forwarded safely ends here
        .layer(look(parts.plan.clone(), steps::hygiene::hygiene)) // below: no hop-by-hop field, no foreign token
        .layer(look(parts.pass, steps::sibling::believe)) // another gateway shows that it is one
        .layer(look(hop, steps::hop::hop)) // what has called it, our own word on the client; a request that goes round ends here
        .layer(look(recording, steps::trace::trace))
        .layer(look(parts.per_client, steps::limit::per_client)) // too many of one client
        .layer_fn(Rest::of)
        .layer(step(parts.leases, steps::lease_questions::answer)) // what is asked of ourselves about leases ends here
        .layer(step(routing, steps::route::route)) // below: route and path are fixed
        .layer(step(Buffering { plan: parts.plan, budget: parts.budget }, steps::buffer::buffer)) // a slow client never holds a lock
        .layer(step((), steps::key::key)) // below: the keys are fixed
        .layer_fn(Rest::of)
        .service(act)
}

/// The second half: what holds locks and sends.
fn act<N: Network>(
    running: TaskTracker,
    fencing: Fencing<N>,
    forward: impl Serve<Permitted<Rc<HeldTenure>>>,
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
    forward: impl Serve<Permitted<Admission>>,
) -> impl Serve<Arrived> {
    let hop = Hop { plan: parts.plan.clone(), name: Rc::new(parts.hop), callers: None };
    let recording = Recording::of(&parts.plan.log);
    ServiceBuilder::new()
        .layer(look(parts.in_flight, steps::limit::limit))
        .layer(look(Screening::by(&parts.plan), steps::screen::screen))
        .layer(look(parts.plan.clone(), steps::hygiene::hygiene)) // the claim is taken off, and kept beside
        .layer(look(hop, steps::hop::hop))
        .layer(look(recording, steps::trace::trace))
        .layer(step(claiming.clone(), steps::claim::announce)) // what gateways ask of the guard itself ends here
        .layer(look(parts.per_client, steps::limit::per_client))
        .layer_fn(Rest::of)
        .layer(step(claiming, steps::claim::claim)) // below: the claim is read, and its ticket verified
        .layer(step(Buffering { plan: parts.plan, budget: parts.budget }, steps::buffer::buffer)) // a gateway that stops in the middle never holds a key
        .layer(step(parts.running, steps::detach::detach)) // below: a gateway that is killed cancels nothing
        .layer_fn(Rc::new)
        .layer(step(checking, steps::arbitrate::arbitrate)) // below: announced durably, settled, in flight
        .layer_fn(Rest::of)
        .service(forward)
}

/// The steps of a filter: the same, but for a moment in the place of the lock.
pub fn filter(
    parts: Parts,
    filtering: Filtering,
    forward: impl Serve<Permitted<Admission>>,
) -> impl Serve<Arrived> {
    let hop = Hop { plan: parts.plan.clone(), name: Rc::new(parts.hop), callers: None };
    let recording = Recording::of(&parts.plan.log);
    ServiceBuilder::new()
        .layer(look(filtering.clone(), steps::filter::show_clock)) // a refusal shows the clock as well
        .layer(look(parts.in_flight, steps::limit::limit))
        .layer(look(Screening::by(&parts.plan), steps::screen::screen))
        .layer(look(parts.plan.clone(), steps::hygiene::hygiene)) // our fields are taken off, and kept beside
        .layer(look(hop, steps::hop::hop))
        .layer(look(recording, steps::trace::trace))
        .layer(look(parts.per_client, steps::limit::per_client))
        .layer_fn(Rest::of)
        .layer(step(filtering.clone(), steps::filter::filter)) // below: it may be begun now, and our fields are back
        .layer(step(Buffering { plan: parts.plan, budget: parts.budget }, steps::buffer::buffer))
        .layer(step(filtering, steps::filter::begin)) // below: it is sent in time, or not at all
        .layer_fn(Rest::of)
        .service(forward)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use fencegate_policies::{file::load, host::CanonicalHost, path::CanonicalPath, plan::UpstreamId};
    use hyper::{HeaderMap, Request};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        agreement::Agreement,
        edition::Edition,
        metrics::{Metrics, WorkerMetrics},
        notes::Notes,
        refusal::Refusal,
        steps::{forward::Forward, hygiene::Clean, screen::Screened},
        trust::Guards,
    };
    use fencegate_http::{
        body::{Body, Reply},
        network::sockets::Sockets,
        peer::Peer,
        upstream::{fleet::Fleets, pool::Pool},
    };
    use fencegate_lock::tenures::keeper::keeper;
    use fencegate_process::{
        clock::{MachineClock, SharedClock},
        randomness::{Guid, SystemRandomness},
    };

    const POLICY: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams: {a: {endpoints: ["http://a:80"], fencing: upstream}}
routes: [{name: pay, upstream: a, match: {path: "/pay/{id}"}, fence: {key: "pay/{path.id}"}}]
"#;

    struct End;

    impl<In: 'static> Serve<In> for End {
        async fn serve(&self, _: In) -> Result<Reply, Refusal> {
            Ok(Reply::new(Body::empty()))
        }
    }

    fn size<In>(rest: &impl Serve<In>, request: In) -> usize {
        size_of_val(&rest.serve(request))
    }

    /// Each of them is made on the stack and copied into its box, with all that the rarest way through it would need.
    /// They were sixteen kilobytes and twice thirteen, and to copy them was a tenth of all that the gateway did.
    #[test]
    fn what_is_boxed_for_a_request_is_small() {
        let gateway = load(POLICY).plan.expect("sound");
        let plan = Arc::new(gateway.serving.clone());
        let all = Metrics::of_gateway(&gateway);
        let metrics = Rc::new(WorkerMetrics::new(all.clone(), &plan));
        let edition = Edition::first(plan.clone(), Fleets::to_look_at(&plan, all.endpoints()));
        let clock: SharedClock = Arc::new(MachineClock);
        let guards = Arc::new(Guards::new(Arc::default()));
        let (running, drain) = (TaskTracker::new(), CancellationToken::new());
        let budget = Budget::new(1 << 20, all.buffered().clone());
        let forward = Forward {
            pool: Rc::new(Pool::new(Sockets, clock.clone(), guards.clone())),
            clock: clock.clone(),
            metrics: metrics.clone(),
            guards: guards.clone(),
            fleets: edition.fleets.clone(),
            fields: Arc::default(),
            running: running.clone(),
            drain: drain.clone(),
        };
        let fencing = Fencing::<Sockets> {
            courier: None,
            keeper: keeper(clock.clone(), 1).0,
            accord: Agreement::of(&gateway, all.clone()).accord(&plan),
            edition: edition.clone(),
            guards,
            tickets: None,
            traces: Default::default(),
            shares: Default::default(),
            clock,
            running: running.clone(),
            drain,
            metrics: metrics.clone(),
            budget: budget.clone(),
            stays: Arc::default(),
            hot: Default::default(),
            leases: None,
        };
        let parts = Parts {
            in_flight: InFlight::at_most(1),
            per_client: PerClient { shares: Default::default(), most: None },
            hop: HopName::new(Guid::new(&SystemRandomness)),
            plan: plan.clone(),
            budget: budget.clone(),
            pass: None,
            callers: None,
            leases: None,
            running: running.clone(),
        };
        let http = || Box::new(Request::new(Body::empty()));
        let (notes, planned, upstream) = (Rc::<Notes>::default(), Rc::new(plan), UpstreamId(0));
        let held =
            Permitted { http: http(), notes: notes.clone(), plan: planned.clone(), upstream, hold: None };
        let sent = size::<Permitted<Rc<HeldTenure>>>(&forward, held);
        let keyed = Keyed { http: http(), notes: notes.clone(), plan: planned, upstream, fenced: None };
        let acted = size(&act(running, fencing, forward), keyed);
        let routing = Routing::of(edition, metrics);
        let middle = ServiceBuilder::new()
            .layer(step(routing.clone(), steps::route::route))
            .layer(step(Buffering { plan: parts.plan.clone(), budget }, steps::buffer::buffer))
            .layer(step((), steps::key::key))
            .layer_fn(Rest::of)
            .service(End);
        let (host, path) = (CanonicalHost::parse("a").expect("a host"), CanonicalPath::parse("/"));
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let peer = Rc::new(Peer::at(local, local));
        let request = Screened { http: http(), notes: notes.clone(), peer: peer.clone(), host, path };
        let routed = size(&middle, Clean { request, presented: HeaderMap::new() });
        let begun = size(&decide(parts, routing, End), Arrived { http: http(), notes, peer });
        // What they are, and a little more; locks and second attempts are in the third one.
        for (size, most) in [(begun, 1152), (routed, 2048), (acted, 5120), (sent, 3584)] {
            assert!(size <= most, "{begun} bytes, then {routed}, {acted} and {sent}");
        }
    }
}
