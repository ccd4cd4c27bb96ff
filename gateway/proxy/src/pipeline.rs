//! THE REQUEST PATH: one chain for the gateway, one for the guard, one for a filter, top to bottom.

use std::{rc::Rc, sync::Arc};

use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_http::network::Network;
use fencegate_protocol::trace::TraceSamplingRate;
use fencegate_zookeeper::peer_secret::PeerSecret;
use tower::ServiceBuilder;

use crate::{
    concurrency_limit::ConcurrencyLimit,
    cors::CorsHeaders,
    frontend::RawRequest,
    handler::{BoxHandler, Handler, map_request, middleware},
    plan_context::WorkerPlanContext,
    steps::{
        self,
        authenticate::{AccessTokenSource, AuthenticatedRequest},
        authorized::DispatchableRequest,
        buffer::{BodyBufferConfig, BufferedRequest},
        client_limit::ClientConcurrencyLimit,
        extract_claim::DispatchClaimContext,
        fence::{HeldLock, WorkerFenceContext},
        filter::DeadlineFilterContext,
        guard_admission::{GuardAdmissionContext, GuardDispatchPermit},
        hop::ProxyHopConfig,
        key::{KeyedRequest, SourceValueRecorder},
        lease_api::LeaseApiRouter,
        peer_auth::PeerVerifier,
        route::RoutingTable,
        validate_head::HeadValidator,
    },
    via::ViaName,
};

/// The parts of the steps of all roles, for one worker and one plan.
pub struct PipelineParts {
    pub plan: Rc<WorkerPlanContext>,
    pub in_flight: ConcurrencyLimit,
    pub per_client: ClientConcurrencyLimit,
    /// The name of this process in `Via`.
    pub via: ViaName,
    /// Signs and verifies the tickets with which services call back. `None` where no route may be called back.
    pub tickets: Option<Arc<TicketIssuer>>,
    /// Answers requests of the lease interface. `None` where the process grants no leases.
    pub leases: Option<LeaseApiRouter>,
    /// The source of the claims of a bearer token.
    pub tokens: AccessTokenSource,
    /// The secret that other gateways have to show. `None` where there is no listener for gateways.
    pub peer_secret: Option<PeerSecret>,
}

/// Builds the steps of the gateway. `forward` is the last step, which sends a request upstream.
pub fn gateway_pipeline<N: Network>(
    parts: PipelineParts,
    fencing: WorkerFenceContext<N>,
    forward: impl Handler<DispatchableRequest<Rc<HeldLock>>>,
) -> impl Handler<RawRequest> {
    routing_pipeline(parts, locking_pipeline(fencing, forward))
}

/// Builds the first half of the chain: the steps that need the plan and the request alone. `fencegate explain` uses
/// them with an `act` that sends nothing.
pub fn routing_pipeline(parts: PipelineParts, act: impl Handler<KeyedRequest>) -> impl Handler<RawRequest> {
    buffering_pipeline(parts, key_pipeline(act))
}

/// Builds the steps of [`routing_pipeline`], and records the values that keys are made of.
pub fn recording_pipeline(
    parts: PipelineParts,
    values: SourceValueRecorder,
    act: impl Handler<KeyedRequest>,
) -> impl Handler<RawRequest> {
    let recording = ServiceBuilder::new()
        .layer(middleware(values, steps::key::record_source_values))
        .service(key_pipeline(act));
    buffering_pipeline(parts, recording)
}

fn buffering_pipeline(
    parts: PipelineParts,
    rest: impl Handler<BufferedRequest<AuthenticatedRequest>>,
) -> impl Handler<RawRequest> {
    let plan = &parts.plan.config.plan;
    let hop = ProxyHopConfig { plan: plan.clone(), via: Rc::new(parts.via), tickets: parts.tickets };
    let cors = plan.listener.cors.as_ref().map(|cors| Rc::new(CorsHeaders::new(cors)));
    let sampling = TraceSamplingRate::from_trace_settings(&plan.log);
    let peers = PeerVerifier::new(parts.peer_secret.clone(), plan);
    ServiceBuilder::new()
        .layer(map_request(parts.in_flight, steps::limit::limit_concurrency)) // too many requests in flight: refuse before any work
        .layer(map_request(parts.peer_secret, steps::peer_challenge::answer_challenge)) // challenge of another gateway: prove our identity
        .layer(map_request(HeadValidator::new(plan), steps::validate_head::validate_head)) // requests that cannot be forwarded safely end here
        .layer(map_request(plan.clone(), steps::strip_headers::strip_headers)) // below: no hop-by-hop field, no foreign token
        .layer(map_request(peers, steps::peer_auth::verify_peer)) // another gateway proves that it is one
        .layer(map_request(hop, steps::hop::add_hop_headers)) // the path of the request so far, and our own report of the client; a request in a loop ends here
        .layer(map_request(sampling, steps::trace::start_trace))
        .layer(map_request(parts.per_client, steps::client_limit::limit_per_client)) // too many requests of one client in flight: refuse
        .layer_fn(BoxHandler::new)
        .layer(middleware(parts.leases, steps::lease_api::answer_lease_api)) // requests about leases are answered here
        .layer(map_request(cors, steps::preflight::answer_preflight)) // below the leases, which no page of another origin may ask for
        .layer(middleware(RoutingTable::new(parts.plan.clone()), steps::route::route_request)) // below: route and path are fixed
        .layer(middleware(parts.tokens, steps::authenticate::authenticate)) // below: the client is verified, where the route reads its identity
        .layer(middleware(BodyBufferConfig::new(&parts.plan), steps::buffer::buffer_request)) // a slow client never holds a lock
        .service(rest)
}

/// Builds the end of the first half, which derives the keys.
fn key_pipeline(act: impl Handler<KeyedRequest>) -> impl Handler<BufferedRequest<AuthenticatedRequest>> {
    ServiceBuilder::new()
        .layer(middleware((), steps::key::derive_keys)) // below: the keys are fixed
        .layer_fn(BoxHandler::new)
        .service(act)
}

/// Builds the second half of the chain: the steps that hold locks and send.
fn locking_pipeline<N: Network>(
    fencing: WorkerFenceContext<N>,
    forward: impl Handler<DispatchableRequest<Rc<HeldLock>>>,
) -> impl Handler<KeyedRequest> {
    let running = fencing.plan.running.clone();
    ServiceBuilder::new()
        .layer(middleware(running, steps::detach::detach)) // below: a client that disconnects cancels nothing
        .layer_fn(Rc::new) // detach needs an owned service
        .layer(middleware(fencing, steps::fence::run_under_fence)) // below: the request holds its keys
        .layer_fn(BoxHandler::new)
        .service(forward) // the token is stamped in here, so that no earlier step can strip it
}

/// Builds the steps of the guard. In the place of the lock stands a check that the token is the newest of its keys.
pub fn guard_pipeline<N: Network>(
    parts: PipelineParts,
    claims: DispatchClaimContext,
    admission: GuardAdmissionContext<N>,
    forward: impl Handler<DispatchableRequest<GuardDispatchPermit>>,
) -> impl Handler<RawRequest> {
    let plan = &parts.plan.config.plan;
    let hop = ProxyHopConfig { plan: plan.clone(), via: Rc::new(parts.via), tickets: None };
    let sampling = TraceSamplingRate::from_trace_settings(&plan.log);
    ServiceBuilder::new()
        .layer(map_request(parts.in_flight, steps::limit::limit_concurrency))
        .layer(map_request(HeadValidator::new(plan), steps::validate_head::validate_head))
        .layer(map_request(plan.clone(), steps::strip_headers::strip_headers)) // the claim is removed from the headers, and kept beside them
        .layer(map_request(hop, steps::hop::add_hop_headers))
        .layer(map_request(sampling, steps::trace::start_trace))
        .layer(middleware(claims.clone(), steps::extract_claim::serve_guard_identity)) // queries of gateways about the guard itself are answered here
        .layer(map_request(parts.per_client, steps::client_limit::limit_per_client))
        .layer_fn(BoxHandler::new)
        .layer(middleware(claims, steps::extract_claim::extract_claim)) // below: the claim is read, and its ticket verified
        .layer(middleware(BodyBufferConfig::new(&parts.plan), steps::buffer::buffer_request)) // a gateway that stops halfway never holds a key
        .layer(middleware(parts.plan.running.clone(), steps::detach::detach)) // below: a gateway that is killed cancels nothing
        .layer_fn(Rc::new)
        .layer(middleware(admission, steps::guard_admission::admit_or_replay)) // below: the token is recorded durably as the newest, older executions are over, and this one is in flight
        .layer_fn(BoxHandler::new)
        .service(forward)
}

/// Builds the steps of a filter. In the place of the lock stands a check of the moment after which a request must not
/// be begun.
pub fn filter_pipeline(
    parts: PipelineParts,
    filter: DeadlineFilterContext,
    forward: impl Handler<DispatchableRequest<GuardDispatchPermit>>,
) -> impl Handler<RawRequest> {
    let plan = &parts.plan.config.plan;
    let hop = ProxyHopConfig { plan: plan.clone(), via: Rc::new(parts.via), tickets: None };
    let sampling = TraceSamplingRate::from_trace_settings(&plan.log);
    ServiceBuilder::new()
        .layer(map_request(parts.in_flight, steps::limit::limit_concurrency))
        .layer(map_request(HeadValidator::new(plan), steps::validate_head::validate_head))
        .layer(map_request(plan.clone(), steps::strip_headers::strip_headers)) // fencing fields are removed, and kept beside the headers
        .layer(map_request(hop, steps::hop::add_hop_headers))
        .layer(map_request(sampling, steps::trace::start_trace))
        .layer(map_request(parts.per_client, steps::client_limit::limit_per_client))
        .layer_fn(BoxHandler::new)
        .layer(middleware(filter.clone(), steps::filter::check_start_deadline)) // below: the request may start now, and its fencing fields are back
        .layer(middleware(BodyBufferConfig::new(&parts.plan), steps::buffer::buffer_request))
        .layer(middleware(filter, steps::filter::recheck_deadline)) // below: the request is sent in time, or not at all
        .layer_fn(BoxHandler::new)
        .service(forward)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use fencegate_policies::{file::load, host::CanonicalHost, path::CanonicalPath, plan::UpstreamId};
    use fencegate_protocol::trace::TraceContext;
    use hyper::{HeaderMap, Request, header::HeaderValue};

    use super::*;
    use crate::{
        request_context::{RequestArrival, RequestContext, RequestSource, RequestTraceIds},
        steps::{
            authorized::DispatchRight, fence::GatewayContext, forward::UpstreamForwarder,
            hop::IdentifiedRequest, trace::TracedRequest,
        },
    };
    use fencegate_config::{
        active_config::ActiveConfig, current_config::CurrentConfig, process_context::ProcessContext,
    };
    use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
    use fencegate_http::{
        body::{Body, Reply},
        buffered::MemoryBudget,
        connection_info::ConnectionInfo,
        network::sockets::OsNetwork,
    };
    use fencegate_http_client::upstream::{endpoint_set::UpstreamSet, pool::ConnectionPool};
    use fencegate_lock::manager::lock_manager::create_lock_manager;
    use fencegate_metrics::{AllMetricFamilies, WorkerMetrics};
    use fencegate_peers::plan_compat::PlanCompatRegistry;
    use fencegate_process::{
        clock::MachineClock,
        randomness::{Guid, SystemRandomness},
    };
    use fencegate_refusal::Refusal;

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

    /// The futures behind the boxes of the path stay small. Each is made on the stack and copied into its box, with
    /// space for the rarest path through it. When they had 13 to 16 kilobytes, the copies took a tenth of the
    /// gateway's time.
    #[test]
    fn boxed_request_state_stays_small() {
        let gateway = load(POLICY).plan.expect("sound");
        let plan = Arc::new(gateway.serving.clone());
        let all = AllMetricFamilies::for_gateway(&gateway);
        let metrics = Rc::new(WorkerMetrics::new(all.clone(), &plan));
        let process = ProcessContext::with_budget(
            Arc::new(MachineClock),
            all.clone(),
            MemoryBudget::new(1 << 20, all.buffered().clone()),
        );
        let config =
            ActiveConfig::initial(plan.clone(), UpstreamSet::for_display(&plan, all.endpoints()), None);
        let guards = Arc::new(UpstreamGuardRegistry::new(Arc::default()));
        let pool = ConnectionPool::new(OsNetwork, process.clock.clone(), guards.clone());
        let shared = Rc::new(WorkerPlanContext {
            process: process.clone(),
            config,
            metrics,
            guards,
            clients: Default::default(),
            running: Default::default(),
        });
        let forward = UpstreamForwarder::new(Rc::new(pool), shared.clone());
        let compat = PlanCompatRegistry::new(&gateway, all);
        let fencing = WorkerFenceContext::<OsNetwork> {
            compat: compat.route_compat_cache(&plan),
            gateway: Arc::new(GatewayContext {
                locks: create_lock_manager(process.clock.clone(), 1).0,
                process,
                config: CurrentConfig::new(gateway),
                compat,
                tickets: None,
                leases: None,
                traces: Default::default(),
                hot_keys: Default::default(),
                requests: Default::default(),
            }),
            plan: shared.clone(),
            forwarder: None,
        };
        let parts = PipelineParts {
            plan: shared.clone(),
            in_flight: ConcurrencyLimit::new(1),
            per_client: ClientConcurrencyLimit { shares: Default::default(), most: None },
            via: ViaName::new(Guid::new(&SystemRandomness)),
            peer_secret: None,
            tickets: None,
            leases: None,
            tokens: AccessTokenSource::Verified(None),
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let http = || Box::new(Request::new(Body::empty()));
        let context = Rc::<RequestContext>::default();
        let planned = Rc::new(plan);
        let upstream = UpstreamId(0);
        let source = || {
            let arrival = RequestArrival::from_peer(ConnectionInfo::new(local, local));
            let client = local.ip();
            let via = Rc::new(ViaName::new(Guid::new(&SystemRandomness)));
            Rc::new(RequestSource {
                arrival,
                client,
                via,
                hops: 0,
                forwarded: None,
                callback: None,
                lease: None,
            })
        };
        let trace = || {
            let context = TraceContext::from_headers(&mut HeaderMap::new(), TraceSamplingRate::Off);
            Rc::new(RequestTraceIds { context, request_id: HeaderValue::from_static("1") })
        };
        let unfenced = DispatchRight::Unfenced;
        let plan = planned.clone();
        let exchange = Rc::default();
        let held = DispatchableRequest::without_route(
            http(),
            context.clone(),
            plan,
            upstream,
            source(),
            unfenced,
            exchange,
        );
        let sent = size::<DispatchableRequest<Rc<HeldLock>>>(&forward, held);
        let keyed = KeyedRequest {
            http: http(),
            context: context.clone(),
            plan: planned,
            upstream,
            route: None,
            source: source(),
            identity: None,
            trace: trace(),
            has_override: false,
            unlocked: None,
            fenced: None,
        };
        let acted = size(&locking_pipeline(fencing, forward), keyed);
        let middle = ServiceBuilder::new()
            .layer(middleware(RoutingTable::new(shared.clone()), steps::route::route_request))
            .layer(middleware(AccessTokenSource::Verified(None), steps::authenticate::authenticate))
            .layer(middleware(BodyBufferConfig::new(&shared), steps::buffer::buffer_request))
            .layer(middleware((), steps::key::derive_keys))
            .layer_fn(BoxHandler::new)
            .service(NoopHandler);
        let host = CanonicalHost::parse("a").expect("a host");
        let path = CanonicalPath::parse("/");
        let request = IdentifiedRequest {
            http: http(),
            context: context.clone(),
            entry: None,
            host,
            path,
            presented: HeaderMap::new(),
            source: source(),
        };
        let routed = size(&middle, TracedRequest { request, trace: trace() });
        let arrival = RequestArrival::from_peer(ConnectionInfo::new(local, local));
        let begun = size(
            &routing_pipeline(parts, NoopHandler),
            RawRequest { http: http(), context, arrival, entry: None },
        );
        // Each limit is the present size and a little more. `acted` contains the wait for locks and the second
        // attempt.
        for (size, most) in [(begun, 1152), (routed, 2304), (acted, 5120), (sent, 3584)] {
            assert!(size <= most, "{begun} bytes, then {routed}, {acted} and {sent}");
        }
    }
}
