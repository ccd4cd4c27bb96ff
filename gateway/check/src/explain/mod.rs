//! Explains how a request would be handled, without sending it: runs the request through the deciding steps of
//! the gateway, with nothing after them. Requests that are spelled next to it are compared with it.

mod explanation;
mod render;
mod request_diff;
mod sample;
#[cfg(test)]
mod tests;
mod variants;

use std::{
    cell::RefCell,
    io,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use fencegate_config::{active_config::ActiveConfig, process_context::ProcessContext};
use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
use fencegate_http::{
    body::{Body, Reply},
    buffered::MemoryBudget,
    client_quota::ClientQuotas,
    connection_info::{ConnectionInfo, TlsInfo},
};
use fencegate_http_client::upstream::endpoint_set::UpstreamSet;
use fencegate_metrics::{AllMetricFamilies, WorkerMetrics};
use fencegate_policies::{
    client_name::ClientName,
    key::SourceValue,
    permits::PermitCount,
    plan::{
        CachedHoldLimits, CommonServingPlan, EffectiveRoute, EffectiveUpstream, FenceRule, GatewayPlan,
        IdempotencyStore, LargeBodyPolicy, LockMode, LockPlacement, LockReusePolicy, PeerForwardPolicy,
        RequestLeasePolicy, Route, Upstream, format_duration,
    },
};
use fencegate_process::{
    clock::MachineClock,
    randomness::{Guid, SystemRandomness},
};
use fencegate_proxy::{
    concurrency_limit::ConcurrencyLimit,
    frontend::RawRequest,
    handler::Handler,
    pipeline::{self, PipelineParts},
    plan_context::WorkerPlanContext,
    request_context::{RequestArrival, RequestContext},
    steps::{
        authenticate::AccessTokenSource,
        client_limit::ClientConcurrencyLimit,
        fence,
        key::{KeyedRequest, SourceValueRecorder},
        upgrade::ClientUpgradeProtocols,
    },
    via::ViaName,
};
use fencegate_refusal::Refusal;
use fencegate_zookeeper::session::paths::ZkPaths;
use hyper::Request;
use tokio_util::task::TaskTracker;

pub use self::{
    explanation::{
        ExplainedKey, LockExplanation, LockReuseExplanation, MatchedRouteConfig, OperationExplanation,
        RefusalExplanation, RequestExplanation, RespelledRequestExplanation, RespellingOutcome,
        UpstreamExplanation,
    },
    request_diff::ForwardedRequestDiff,
    sample::{ParseSampleRequestError, SampleRequest, default_host},
};

/// Explains how the request would be handled. It has no side effects: it connects to nothing and writes nothing.
///
/// # Errors
/// Returns an error if the machine has no resources for a runtime.
pub fn explain(gateway: &GatewayPlan, sample: &SampleRequest) -> io::Result<RequestExplanation> {
    let base = RequestExplanation {
        method: sample.method.clone(),
        target: sample.target.clone(),
        ..RequestExplanation::default()
    };
    let request = match sample.to_request() {
        Ok(request) => request,
        Err(refused) => return Ok(RequestExplanation { refused: Some(refused), ..base }),
    };
    let fields = request.headers().clone();
    let kind = gateway.serving.listener.tls.as_ref().and_then(|tls| tls.client_name);
    // A name that does not have the form of its kind is ignored, as it is in a certificate.
    let client_name = kind.zip(sample.client_name.as_deref());
    let peer = unconnected_peer(client_name.and_then(|(kind, name)| ClientName::new(kind, name)));
    let tokens = sample.token_verification_mode(&gateway.serving.jwt);
    let RequestSimulationResult { answer, context, keyed, sources } =
        simulate_request(gateway, request, peer, tokens)?;
    let serving = &gateway.serving;
    let route = context.route().map(|id| serving.routes.get(id));
    let upstream = keyed.as_ref().map(|keyed| keyed.upstream).or(route.map(|route| route.upstream));
    let reached = RequestExplanation {
        route: route.map(|route| route.name.to_string()),
        upstream: upstream.map(|id| upstream_info(serving.upstream(id))),
        sources,
        observed: context.shadow_refusal().map(|reason| reason.word()),
        policy: route.map(|route| effective_policy(serving, route)),
        ..base
    };
    Ok(match (answer, keyed) {
        (Err(refusal), _) => {
            RequestExplanation { refused: Some(RefusalExplanation::new(&refusal)), ..reached }
        }
        (Ok(reply), None) => RequestExplanation { answered: Some(reply.status().as_u16()), ..reached },
        (Ok(_), Some(keyed)) => RequestExplanation {
            lock: explain_lock(gateway, &keyed),
            once: explain_operation(gateway, &keyed),
            sent: Some(ForwardedRequestDiff::new(gateway, keyed, &fields)),
            ..reached
        },
    })
}

/// Explains the request as [`explain`] does, and also the spellings next to it, which a service may take for the
/// same resource.
///
/// # Errors
/// Returns an error if the machine has no resources for a runtime.
pub fn explain_with_variants(
    gateway: &GatewayPlan,
    sample: &SampleRequest,
) -> io::Result<RequestExplanation> {
    let asked = explain(gateway, sample)?;
    let nearby = variants::nearby_requests(sample, &asked.sources).into_iter();
    let compared = nearby.map(|variant| {
        let given = explain(gateway, &variant.request)?;
        Ok(RespelledRequestExplanation::new(variant.spelling, variant.written, &asked, given))
    });
    let variants = Some(compared.collect::<io::Result<_>>()?);
    Ok(RequestExplanation { variants, ..asked })
}

/// Takes the place of the steps that act, and keeps the request as it reaches them.
#[derive(Clone, Default)]
struct RecordingHandler(Rc<RefCell<Option<KeyedRequest>>>);

impl Handler<KeyedRequest> for RecordingHandler {
    async fn handle(&self, request: KeyedRequest) -> Result<Reply, Refusal> {
        self.0.replace(Some(request));
        Ok(Reply::new(Body::empty()))
    }
}

/// The state of a request at the end of the deciding steps.
struct RequestSimulationResult {
    answer: Result<Reply, Refusal>,
    context: Rc<RequestContext>,
    /// `None` if a deciding step has answered, so that the request does not reach the steps that act.
    keyed: Option<KeyedRequest>,
    sources: Vec<SourceValue>,
}

fn simulate_request(
    gateway: &GatewayPlan,
    request: Request<Body>,
    peer: ConnectionInfo,
    tokens: AccessTokenSource,
) -> io::Result<RequestSimulationResult> {
    let plan = Arc::new(gateway.serving.clone());
    let all = AllMetricFamilies::for_gateway(gateway);
    let metrics = Rc::new(WorkerMetrics::new(all.clone(), &plan));
    let memory = plan.listener.limits.buffered.unwrap_or(usize::MAX);
    let budget = MemoryBudget::new(memory, all.buffered().clone());
    let process = ProcessContext::with_budget(Arc::new(MachineClock), all.clone(), budget);
    let context = WorkerPlanContext {
        process,
        config: ActiveConfig::initial(plan.clone(), UpstreamSet::for_display(&plan, all.endpoints()), None),
        metrics,
        guards: Arc::new(UpstreamGuardRegistry::new(Arc::default())),
        clients: ClientQuotas::default(),
        running: TaskTracker::new(),
    };
    let parts = PipelineParts {
        plan: Rc::new(context),
        in_flight: ConcurrencyLimit::new(1),
        per_client: ClientConcurrencyLimit { shares: ClientQuotas::default(), most: None },
        via: ViaName::new(Guid::new(&SystemRandomness)),
        tickets: None,
        leases: None,
        tokens,
        peer_secret: None,
    };
    let recorder = RecordingHandler::default();
    let values = SourceValueRecorder::default();
    let steps = pipeline::recording_pipeline(parts, values.clone(), recorder.clone());
    let context = Rc::<RequestContext>::default();
    let arrival = RequestArrival::from_peer(peer);
    let arrived = RawRequest { http: Box::new(request), context: context.clone(), arrival, entry: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let answer = runtime.block_on(steps.handle(arrived));
    let keyed = recorder.0.take();
    Ok(RequestSimulationResult { answer, context, keyed, sources: values.take() })
}

/// The connection of the sample's client, which does not exist. If there is a name, the client has presented a
/// certificate.
fn unconnected_peer(client_name: Option<ClientName>) -> ConnectionInfo {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let peer = ConnectionInfo::new(local, local);
    match client_name {
        Some(_) => peer.with_tls(TlsInfo { server_name: None, client: None, client_name }),
        None => peer,
    }
}

fn effective_policy(serving: &CommonServingPlan, route: &Route) -> MatchedRouteConfig {
    let upstream = serving.upstream(route.upstream);
    MatchedRouteConfig {
        route: EffectiveRoute::new(route, upstream.name.to_string()),
        upstream: EffectiveUpstream::new(upstream),
    }
}

fn upstream_info(upstream: &Upstream) -> UpstreamExplanation {
    UpstreamExplanation {
        name: upstream.name.to_string(),
        endpoints: upstream
            .endpoints
            .iter()
            .map(|endpoint| upstream.endpoint_with_scheme(endpoint))
            .collect(),
        fencing: upstream.fencing.as_str(),
        delay: upstream.fencing.handover_delay().map(format_duration),
    }
}

fn explain_lock(gateway: &GatewayPlan, keyed: &KeyedRequest) -> Option<LockExplanation> {
    let fenced = keyed.fenced.as_ref()?;
    let fence = fenced.fence(&gateway.serving);
    let paths = ZkPaths::new(&gateway.zookeeper.root);
    let others = gateway.serving.routes.routes().iter().filter(|route| route.id != fenced.route);
    let also = others.filter(|route| route.fence.as_ref().is_some_and(|other| fence.may_share_key(other)));
    let held = fenced.keys.iter().zip(&*fenced.sites);
    Some(LockExplanation {
        also: also.map(|route| route.name.to_string()).collect(),
        keys: held
            .map(|(key, site)| ExplainedKey { key: key.to_string(), path: paths.lock_parent_path(key, site) })
            .collect(),
        layout: matches!(fence.placing, LockPlacement::Foreign { .. })
            .then(|| fence.placing.layout().as_str()),
        permits: fence.permits().map(PermitCount::count),
        mode: fenced.mode.as_str(),
        wait: format_duration(fence::max_wait(keyed, fence)),
        locked_status: fence.locked_status,
        queue: fence.queue,
        client_share: fence.client_share,
        share_client: fenced.share_client.as_deref().map(str::to_owned),
        hold: explain_hold(fence),
        lease: (fence.lease != RequestLeasePolicy::Never).then(|| fence.lease.as_str()),
        forward: may_be_forwarded(gateway, keyed, fence).then_some("holder"),
        upload_timeout: match fence.large_bodies {
            LargeBodyPolicy::Refuse => None,
            LargeBodyPolicy::Stream { within } => Some(format_duration(within)),
        },
        enforce: fence.enforce.as_str(),
    })
}

/// Whether the request may be forwarded to the gateway that holds the key. By the plan, a fence that caches no
/// key forwards nothing, so that is not checked here.
fn may_be_forwarded(gateway: &GatewayPlan, keyed: &KeyedRequest, fence: &FenceRule) -> bool {
    let exclusive = keyed.fenced.as_ref().is_some_and(|fenced| fenced.mode == LockMode::Exclusive);
    // A request whose body would be streamed counts as complete here, too.
    let most = gateway.serving.listener.limits.max_body;
    let in_full = keyed.http.body().bytes().is_some_and(|bytes| bytes.len() <= most);
    let route = keyed.route.map(|id| gateway.serving.routes.get(id));
    let switches = route.is_some_and(|route| !route.upgrade.is_empty())
        && keyed.http.extensions().get::<ClientUpgradeProtocols>().is_some();
    gateway.peer.is_some() && fence.forward == PeerForwardPolicy::Holder && exclusive && in_full && !switches
}

fn explain_hold(fence: &FenceRule) -> LockReuseExplanation {
    match fence.hold {
        LockReusePolicy::Strict => LockReuseExplanation::Strict,
        LockReusePolicy::Cached(CachedHoldLimits { linger, max_local, max_hold, max_tenure }) => {
            LockReuseExplanation::Cached {
                linger: format_duration(linger),
                max_local,
                max_hold: format_duration(max_hold),
                max_tenure: format_duration(max_tenure),
            }
        }
    }
}

fn explain_operation(gateway: &GatewayPlan, keyed: &KeyedRequest) -> Option<OperationExplanation> {
    let fenced = keyed.fenced.as_ref()?;
    let hashed = fenced.operation.as_ref()?;
    let named = fenced.operation_name.as_ref()?;
    let once = fenced.fence(&gateway.serving).once.as_ref()?;
    let path = match once.store {
        IdempotencyStore::Guard => None,
        IdempotencyStore::ZooKeeper => Some(ZkPaths::new(&gateway.zookeeper.root).operation_path(&hashed.id)),
    };
    Some(OperationExplanation {
        name: named.name.clone(),
        principal: named.principal.clone(),
        store: once.store.as_str(),
        keep: format_duration(once.keep),
        reference: hashed.id.reference(),
        path,
    })
}
