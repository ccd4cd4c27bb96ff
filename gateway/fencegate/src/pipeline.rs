//! THE REQUEST PATH: one chain for the gateway, one for the guard, one for a filter, top to bottom.

use std::{rc::Rc, sync::Arc};

use fencegate_http::{buffered::Budget, network::Network};
use fencegate_lock::peer_secret::PeerSecret;
use fencegate_policies::plan::Plan;
use tokio_util::task::TaskTracker;
use tower::ServiceBuilder;

use crate::{
    concurrency_limit::ConcurrencyLimit,
    frontend::RawRequest,
    handler::{BoxHandler, Handler, map_request, middleware},
    steps::{
        self,
        authorized::AuthorizedRequest,
        buffer::BufferConfig,
        extract_claim::ClaimDeps,
        fence::{FenceDeps, RequestGrant},
        filter::FilterDeps,
        guard_admission::{Admission, GuardAdmissionDeps},
        hop::HopConfig,
        key::KeyedRequest,
        lease_api::LeaseApiStep,
        limit::ClientLimit,
        route::RoutingTable,
        validate_head::HeadValidator,
    },
    ticket_issuer::TicketIssuer,
    trace::Sampling,
    via::ViaName,
};

/// What the steps of both roles are made of, for one worker and one plan.
pub struct PipelineDeps {
    pub in_flight: ConcurrencyLimit,
    pub per_client: ClientLimit,
    pub hop: ViaName,
    /// For bodies that are here in full.
    pub budget: Budget,
    /// Signs what services show that call back, where that is allowed.
    pub callers: Option<Arc<TicketIssuer>>,
    /// What is asked about leases, where there are any.
    pub leases: Option<LeaseApiStep>,
    /// What other gateways have to show, where they are listened to.
    pub pass: Option<PeerSecret>,
    pub plan: Arc<Plan>,
    pub running: TaskTracker,
}

/// The steps of the gateway, in front of what sends a request upstream.
pub fn gateway_pipeline<N: Network>(
    parts: PipelineDeps,
    routing: RoutingTable,
    fencing: FenceDeps<N>,
    forward: impl Handler<AuthorizedRequest<Rc<RequestGrant>>>,
) -> impl Handler<RawRequest> {
    let running = parts.running.clone();
    routing_pipeline(parts, routing, locking_pipeline(running, fencing, forward))
}

/// The first half of it: all that is decided by the plan and the request alone. `fencegate explain` asks the same
/// steps, with nothing behind them.
pub fn routing_pipeline(
    parts: PipelineDeps,
    routing: RoutingTable,
    act: impl Handler<KeyedRequest>,
) -> impl Handler<RawRequest> {
    let hop = HopConfig { plan: parts.plan.clone(), name: Rc::new(parts.hop), callers: parts.callers };
    let recording = Sampling::from_log(&parts.plan.log);
    ServiceBuilder::new()
        .layer(map_request(parts.in_flight, steps::limit::limit)) // too many at once: refuse before any work
        .layer(map_request(parts.pass.clone(), steps::peer_auth::answer_challenge)) // another gateway asks whether we are who it means
        .layer(map_request(HeadValidator::new(&parts.plan), steps::validate_head::validate_head)) // what cannot be forwarded safely ends here
        .layer(map_request(parts.plan.clone(), steps::strip_headers::strip_headers)) // below: no hop-by-hop field, no foreign token
        .layer(map_request(parts.pass, steps::peer_auth::verify_peer)) // another gateway shows that it is one
        .layer(map_request(hop, steps::hop::hop)) // what has called it, our own word on the client; a request that goes round ends here
        .layer(map_request(recording, steps::trace::trace))
        .layer(map_request(parts.per_client, steps::limit::per_client)) // too many of one client
        .layer_fn(BoxHandler::new)
        .layer(middleware(parts.leases, steps::lease_api::answer)) // what is asked of ourselves about leases ends here
        .layer(middleware(routing, steps::route::route)) // below: route and path are fixed
        .layer(middleware(BufferConfig { plan: parts.plan, budget: parts.budget }, steps::buffer::buffer)) // a slow client never holds a lock
        .layer(middleware((), steps::key::key)) // below: the keys are fixed
        .layer_fn(BoxHandler::new)
        .service(act)
}

/// The second half: what holds locks and sends.
fn locking_pipeline<N: Network>(
    running: TaskTracker,
    fencing: FenceDeps<N>,
    forward: impl Handler<AuthorizedRequest<Rc<RequestGrant>>>,
) -> impl Handler<KeyedRequest> {
    ServiceBuilder::new()
        .layer(middleware(running, steps::detach::detach)) // below: a client that hangs up cancels nothing
        .layer_fn(Rc::new) // detach needs an owned rest
        .layer(middleware(fencing, steps::fence::fence)) // below: the keys are ours
        .layer_fn(BoxHandler::new)
        .service(forward) // stamped last, nothing can strip it
}

/// The steps of the guard: the same, with the question whether the token is the newest in the place of the lock.
pub fn guard_pipeline<N: Network>(
    parts: PipelineDeps,
    claiming: ClaimDeps,
    checking: GuardAdmissionDeps<N>,
    forward: impl Handler<AuthorizedRequest<Admission>>,
) -> impl Handler<RawRequest> {
    let hop = HopConfig { plan: parts.plan.clone(), name: Rc::new(parts.hop), callers: None };
    let recording = Sampling::from_log(&parts.plan.log);
    ServiceBuilder::new()
        .layer(map_request(parts.in_flight, steps::limit::limit))
        .layer(map_request(HeadValidator::new(&parts.plan), steps::validate_head::validate_head))
        .layer(map_request(parts.plan.clone(), steps::strip_headers::strip_headers)) // the claim is taken off, and kept beside
        .layer(map_request(hop, steps::hop::hop))
        .layer(map_request(recording, steps::trace::trace))
        .layer(middleware(claiming.clone(), steps::extract_claim::announce)) // what gateways ask of the guard itself ends here
        .layer(map_request(parts.per_client, steps::limit::per_client))
        .layer_fn(BoxHandler::new)
        .layer(middleware(claiming, steps::extract_claim::claim)) // below: the claim is read, and its ticket verified
        .layer(middleware(BufferConfig { plan: parts.plan, budget: parts.budget }, steps::buffer::buffer)) // a gateway that stops in the middle never holds a key
        .layer(middleware(parts.running, steps::detach::detach)) // below: a gateway that is killed cancels nothing
        .layer_fn(Rc::new)
        .layer(middleware(checking, steps::guard_admission::arbitrate)) // below: announced durably, settled, in flight
        .layer_fn(BoxHandler::new)
        .service(forward)
}

/// The steps of a filter: the same, but for a moment in the place of the lock.
pub fn filter_pipeline(
    parts: PipelineDeps,
    filtering: FilterDeps,
    forward: impl Handler<AuthorizedRequest<Admission>>,
) -> impl Handler<RawRequest> {
    let hop = HopConfig { plan: parts.plan.clone(), name: Rc::new(parts.hop), callers: None };
    let recording = Sampling::from_log(&parts.plan.log);
    ServiceBuilder::new()
        .layer(map_request(filtering.clone(), steps::filter::show_clock)) // a refusal shows the clock as well
        .layer(map_request(parts.in_flight, steps::limit::limit))
        .layer(map_request(HeadValidator::new(&parts.plan), steps::validate_head::validate_head))
        .layer(map_request(parts.plan.clone(), steps::strip_headers::strip_headers)) // our fields are taken off, and kept beside
        .layer(map_request(hop, steps::hop::hop))
        .layer(map_request(recording, steps::trace::trace))
        .layer(map_request(parts.per_client, steps::limit::per_client))
        .layer_fn(BoxHandler::new)
        .layer(middleware(filtering.clone(), steps::filter::filter)) // below: it may be begun now, and our fields are back
        .layer(middleware(BufferConfig { plan: parts.plan, budget: parts.budget }, steps::buffer::buffer))
        .layer(middleware(filtering, steps::filter::begin)) // below: it is sent in time, or not at all
        .layer_fn(BoxHandler::new)
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
        active_config::ActiveConfig,
        guard_identity::GuardRegistry,
        metrics::{Metrics, WorkerMetrics},
        plan_compat::PlanCompat,
        refusal::Refusal,
        request_context::RequestContext,
        steps::{
            forward::UpstreamForwarder, strip_headers::SanitizedRequest, validate_head::ValidatedRequest,
        },
    };
    use fencegate_http::{
        body::{Body, Reply},
        connection_info::ConnectionInfo,
        network::sockets::Sockets,
        upstream::{endpoint_set::Upstreams, pool::Pool},
    };
    use fencegate_lock::manager::lock_manager::lock_manager;
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

    struct NoopHandler;

    impl<In: 'static> Handler<In> for NoopHandler {
        async fn handle(&self, _: In) -> Result<Reply, Refusal> {
            Ok(Reply::new(Body::empty()))
        }
    }

    fn size<In>(rest: &impl Handler<In>, request: In) -> usize {
        size_of_val(&rest.handle(request))
    }

    /// Each of them is made on the stack and copied into its box, with all that the rarest way through it would need.
    /// They were sixteen kilobytes and twice thirteen, and to copy them was a tenth of all that the gateway did.
    #[test]
    fn what_is_boxed_for_a_request_is_small() {
        let gateway = load(POLICY).plan.expect("sound");
        let plan = Arc::new(gateway.serving.clone());
        let all = Metrics::for_gateway(&gateway);
        let metrics = Rc::new(WorkerMetrics::new(all.clone(), &plan));
        let edition = ActiveConfig::initial(plan.clone(), Upstreams::for_display(&plan, all.endpoints()));
        let clock: SharedClock = Arc::new(MachineClock);
        let guards = Arc::new(GuardRegistry::new(Arc::default()));
        let (running, drain) = (TaskTracker::new(), CancellationToken::new());
        let budget = Budget::new(1 << 20, all.buffered().clone());
        let forward = UpstreamForwarder {
            pool: Rc::new(Pool::new(Sockets, clock.clone(), guards.clone())),
            clock: clock.clone(),
            metrics: metrics.clone(),
            guards: guards.clone(),
            fleets: edition.fleets.clone(),
            fields: Arc::default(),
            running: running.clone(),
            drain: drain.clone(),
        };
        let fencing = FenceDeps::<Sockets> {
            courier: None,
            keeper: lock_manager(clock.clone(), 1).0,
            accord: PlanCompat::new(&gateway, all.clone()).route_verdicts(&plan),
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
        let parts = PipelineDeps {
            in_flight: ConcurrencyLimit::new(1),
            per_client: ClientLimit { shares: Default::default(), most: None },
            hop: ViaName::new(Guid::new(&SystemRandomness)),
            plan: plan.clone(),
            budget: budget.clone(),
            pass: None,
            callers: None,
            leases: None,
            running: running.clone(),
        };
        let http = || Box::new(Request::new(Body::empty()));
        let (notes, planned, upstream) = (Rc::<RequestContext>::default(), Rc::new(plan), UpstreamId(0));
        let held = AuthorizedRequest {
            http: http(),
            notes: notes.clone(),
            plan: planned.clone(),
            upstream,
            hold: None,
        };
        let sent = size::<AuthorizedRequest<Rc<RequestGrant>>>(&forward, held);
        let keyed =
            KeyedRequest { http: http(), notes: notes.clone(), plan: planned, upstream, fenced: None };
        let acted = size(&locking_pipeline(running, fencing, forward), keyed);
        let routing = RoutingTable::new(edition, metrics);
        let middle = ServiceBuilder::new()
            .layer(middleware(routing.clone(), steps::route::route))
            .layer(middleware(BufferConfig { plan: parts.plan.clone(), budget }, steps::buffer::buffer))
            .layer(middleware((), steps::key::key))
            .layer_fn(BoxHandler::new)
            .service(NoopHandler);
        let (host, path) = (CanonicalHost::parse("a").expect("a host"), CanonicalPath::parse("/"));
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let peer = Rc::new(ConnectionInfo::new(local, local));
        let request = ValidatedRequest { http: http(), notes: notes.clone(), peer: peer.clone(), host, path };
        let routed = size(&middle, SanitizedRequest { request, presented: HeaderMap::new() });
        let begun =
            size(&routing_pipeline(parts, routing, NoopHandler), RawRequest { http: http(), notes, peer });
        // What they are, and a little more; locks and second attempts are in the third one.
        for (size, most) in [(begun, 1152), (routed, 2048), (acted, 5120), (sent, 3584)] {
            assert!(size <= most, "{begun} bytes, then {routed}, {acted} and {sent}");
        }
    }
}
