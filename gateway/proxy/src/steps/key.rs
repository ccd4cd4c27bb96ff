//! Derives the keys of a fenced request from its path as forwarded and from its buffered body. After this step the
//! keys do not change.

pub mod name;

use std::rc::Rc;

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    key::{CompleteBody, ContentDeclaration, ResourceKey, json},
    operation::OperationHeader,
    plan::{Enforcement, FenceRule, LockLocation, LockMode, Route, RouteId, ServingPlan, UpstreamId},
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{HeaderMap, Request};

use crate::{
    handler::Handler,
    request_context::{PlanHandle, RequestContext},
    steps::{
        buffer::BufferedRequest,
        bufferable::{BufferableRequest, copy_buffered},
        parameters::{RequestParameters, header_field, refuse_conflicting_parameters},
        route::RoutedRequest,
    },
};

/// A request whose keys are known.
pub struct KeyedRequest {
    pub http: Box<Request<Body>>,
    pub notes: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub upstream: UpstreamId,
    pub fenced: Option<RequestLockSpec>,
}

/// The lock of a request on a fenced route.
pub struct RequestLockSpec {
    pub route: RouteId,
    /// Sorted, each once, at least one.
    pub keys: Rc<[ResourceKey]>,
    /// The place of the lock of each key, in the order of the keys.
    pub sites: Rc<[LockLocation]>,
    pub mode: LockMode,
    /// The operation, where the route has `once`.
    pub operation: Option<Rc<OperationHeader>>,
    /// Kept for as long as any part of the request runs: another plan may wait for its end.
    pub running: Rc<RunningRequestGuard>,
}

impl KeyedRequest {
    /// A copy of the request; `None` if its body is not here in full.
    pub fn try_clone(&self) -> Option<Self> {
        let http = copy_buffered(&self.http)?;
        let Self { notes: context, plan, upstream, .. } = self;
        Some(Self { http, notes: context.clone(), plan: plan.clone(), upstream: *upstream, fenced: None })
    }
}

impl RequestLockSpec {
    pub fn fence<'a>(&self, plan: &'a ServingPlan) -> &'a FenceRule {
        plan.routes.get(self.route).fence.as_ref().expect("a request is fenced by a route that fences")
    }
}

impl BufferableRequest for KeyedRequest {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn needs_full_body(&self) -> bool {
        self.fenced.is_some()
    }
}

pub async fn derive_keys<S: Handler<KeyedRequest>>(
    _: &(),
    request: BufferedRequest<RoutedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    let BufferedRequest(routed) = request;
    let fenced = match request_lock(&routed) {
        // On a route that only observes, a request without a key goes out without a token.
        Err(refusal) if routed.fence().is_some_and(|fence| fence.enforce == Enforcement::Observe) => {
            routed.notes.observed.set(Some(refusal.reason));
            None
        }
        fenced => fenced?,
    };
    if let Some(fenced) = &fenced {
        routed.notes.keys.get_or_init(|| fenced.keys.clone());
    }
    let observes = routed.fence().is_some_and(|fence| fence.enforce == Enforcement::Observe);
    let RoutedRequest { http, notes: context, plan, upstream, running, .. } = routed;
    // The request may pass without a lock. After a reload that ends `observe`, later requests wait for its end.
    context.unlocked.replace(running.filter(|_| observes));
    let served = next.handle(KeyedRequest { http, notes: context.clone(), plan, upstream, fenced }).await;
    // A tunnel keeps its own by now.
    match context.unlocked.take() {
        Some(running) => served.map(|reply| reply.map(|body| body.keep_until_complete(running))),
        None => served,
    }
}

fn request_lock(routed: &RoutedRequest) -> Result<Option<RequestLockSpec>, Refusal> {
    let Some(id) = routed.route else { return Ok(None) };
    let route = routed.plan.routes.get(id);
    let Some(fence) = &route.fence else { return Ok(None) };
    let (keys, operation) = expand_keys(routed, route, fence)?;
    let sites = fence.sites(&keys).map_err(|bad| Refusal::from_key_error(&bad))?.into();
    let mode = fence.mode.mode(routed.http.method().as_str());
    let running = routed.running.clone().expect("the route fences");
    Ok(Some(RequestLockSpec { route: id, keys, sites, mode, operation: operation.map(Rc::new), running }))
}

fn expand_keys(
    routed: &RoutedRequest,
    route: &Route,
    fence: &FenceRule,
) -> Result<(Rc<[ResourceKey]>, Option<OperationHeader>), Refusal> {
    let body = fence.reads_body().then(|| parse_json_body(&routed.http, fence)).transpose()?;
    let values = RequestParameters {
        bound: Some(route.bind(&routed.path)),
        query: routed.http.uri().query(),
        headers: routed.http.headers(),
        host: routed.host.name(),
        body: body.as_ref(),
    };
    let keys = fence.expand_all(&values).map_err(|bad| Refusal::from_key_error(&bad))?;
    let http = &routed.http;
    let content =
        http.body().bytes().map(|bytes| CompleteBody { said: content_headers(http.headers()), bytes });
    refuse_conflicting_parameters(fence, http.method(), &values, content)?;
    Ok((keys.into(), derive_operation(routed, fence, &values)?))
}

fn content_headers(headers: &HeaderMap) -> ContentDeclaration<'_> {
    ContentDeclaration {
        kind: header_field(headers, "content-type"),
        coding: header_field(headers, "content-encoding"),
    }
}

/// The operation of a request, on a route with `once`.
fn derive_operation(
    routed: &RoutedRequest,
    fence: &FenceRule,
    values: &RequestParameters<'_>,
) -> Result<Option<OperationHeader>, Refusal> {
    let Some(once) = fence.once_rule(routed.http.method().as_str()) else { return Ok(None) };
    let named = once.operation_name(values).map_err(|bad| Refusal::from_name_error(&bad))?;
    let credentials = match &once.principal {
        None => client_credentials(routed),
        Some(_) => name::ClientCredentials::default(),
    };
    let wanted = name::FingerprintInput {
        credentials: &credentials,
        method: routed.http.method().as_str(),
        target: routed.http.uri().path_and_query().map_or("/", |target| target.as_str()),
        body: routed.http.body().bytes().expect("the body of a fenced request is here in full"),
    };
    let upstream = &routed.plan.upstream(routed.upstream).name;
    Ok(named.map(|named| {
        let operation = name::operation_header(upstream, once, &named, wanted);
        routed.notes.named.get_or_init(|| named);
        operation
    }))
}

fn client_credentials(routed: &RoutedRequest) -> name::ClientCredentials {
    let RoutedRequest { http, notes: context, .. } = routed;
    let certificate = match context.forwarded.get() {
        Some(forwarded) => forwarded.certificate.clone(),
        None => {
            let shown = context.certified.get().and_then(|peer| peer.certificate());
            shown.map(|identity| name::certificate_digest(identity).into())
        }
    };
    if let Some(certificate) = &certificate {
        context.certificate.get_or_init(|| certificate.clone());
    }
    name::ClientCredentials::from_request(http.headers(), certificate.as_deref())
}

fn parse_json_body(http: &Request<Body>, fence: &FenceRule) -> Result<json::BodyValues, Refusal> {
    let bytes = http.body().bytes().expect("the body of a fenced request is here in full");
    fence
        .parse_body(&content_headers(http.headers()), bytes)
        .map_err(|bad| Refusal::new(RefusalReason::KeyInvalid, bad.to_string()))
}
