//! Derives the keys of a fenced request from its path as forwarded and from its buffered body. After this step the
//! keys do not change.

pub mod name;

use std::{cell::RefCell, rc::Rc, sync::Arc};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    key::{BodyValues, CompleteBody, ResourceKey, SourceValue, TemplateValueSource},
    operation::FencingOperationHeader,
    plan::{
        ClientOperationName, CommonServingPlan, Enforcement, FenceRule, LockLocation, LockMode, Route,
        RouteId, UpstreamId,
    },
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::Request;

use crate::{
    handler::Handler,
    request_context::{
        PlanHandle, RequestContext, RequestSource, RequestTraceIds, UpstreamExchange, VerifiedClientIdentity,
    },
    steps::{
        authenticate::AuthenticatedRequest,
        authorized::{DispatchRight, DispatchableRequest},
        buffer::BufferedRequest,
        bufferable::{BufferableRequest, copy_buffered},
        parameters::{RequestParameters, content_headers, refuse_conflicting_parameters},
        route::RoutedRequest,
    },
};

/// A request whose keys were derived.
pub struct KeyedRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub upstream: UpstreamId,
    /// `None` for a request that matches no route and that the plan lets pass.
    pub route: Option<RouteId>,
    pub source: Rc<RequestSource>,
    /// The verified identity of the client; `None` if nothing was verified.
    pub identity: Option<Rc<VerifiedClientIdentity>>,
    pub trace: Rc<RequestTraceIds>,
    /// True if a field of the request overrides its method or path.
    pub has_override: bool,
    /// Counts a request that may pass without a lock, because its route only observes, until its answer is
    /// complete.
    pub unlocked: Option<Rc<RunningRequestGuard>>,
    pub fenced: Option<RequestLockSpec>,
}

/// The lock of a request on a fenced route.
pub struct RequestLockSpec {
    pub route: RouteId,
    /// The keys: sorted, without duplicates, at least one.
    pub keys: Rc<[ResourceKey]>,
    /// The place of the lock node of each key in ZooKeeper, in the order of the keys.
    pub sites: Rc<[LockLocation]>,
    pub mode: LockMode,
    /// The operation, where the route has `once`.
    pub operation: Option<Rc<FencingOperationHeader>>,
    /// The client's name for the operation. `fencegate explain` shows it; it is never stored.
    pub operation_name: Option<ClientOperationName>,
    /// The digest of the identity in the client's certificate, where it is a part of the operation's fingerprint.
    pub certificate: Option<Arc<str>>,
    /// The client in whose quota the route counts the request; `None` for the client's address.
    pub share_client: Option<Arc<str>>,
    /// Counts the request as running. It is kept for as long as any part of the request runs, because another plan
    /// may wait for the end of the request.
    pub running: Rc<RunningRequestGuard>,
}

impl KeyedRequest {
    /// True if the route of the request fences, whether or not the request has keys.
    pub fn is_route_fenced(&self) -> bool {
        self.route.is_some_and(|route| self.plan.routes.get(route).fence.is_some())
    }

    /// Copies the request; `None` if its body was not buffered in full.
    pub fn try_clone(&self) -> Option<Self> {
        let http = copy_buffered(&self.http)?;
        Some(Self {
            http,
            context: self.context.clone(),
            plan: self.plan.clone(),
            source: self.source.clone(),
            identity: self.identity.clone(),
            trace: self.trace.clone(),
            unlocked: self.unlocked.clone(),
            fenced: None,
            ..*self
        })
    }
}

impl KeyedRequest {
    /// Makes the request that may be sent with this right. The sending is recorded in `exchange`.
    pub fn into_dispatchable<H>(
        self,
        right: DispatchRight<H>,
        exchange: Rc<UpstreamExchange>,
    ) -> DispatchableRequest<H> {
        let Self { http, context, plan, upstream, route, source, identity, has_override, unlocked, .. } =
            self;
        DispatchableRequest {
            route,
            identity,
            has_override: Some(has_override),
            unlocked,
            ..DispatchableRequest::without_route(http, context, plan, upstream, source, right, exchange)
        }
    }
}

impl RequestLockSpec {
    pub fn fence<'a>(&self, plan: &'a CommonServingPlan) -> &'a FenceRule {
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

pub(crate) async fn derive_keys<S: Handler<KeyedRequest>>(
    _: &(),
    request: BufferedRequest<AuthenticatedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    let BufferedRequest(request) = request;
    let routed = &request.routed;
    let observes = routed.fence().is_some_and(|fence| fence.enforce == Enforcement::Observe);
    let fenced = match request_lock(&request) {
        // On a route that only observes, a request without a key is sent without a token.
        Err(refusal) if observes => {
            routed.context.keys.get_or_init(|| Err(refusal.reason));
            None
        }
        fenced => fenced?,
    };
    if let Some(fenced) = &fenced {
        routed.context.keys.get_or_init(|| Ok(fenced.keys.clone()));
    }
    let AuthenticatedRequest { routed, identity } = request;
    let RoutedRequest { http, context, plan, upstream, route, source, trace, has_override, running, .. } =
        routed;
    // The request may pass without a lock, so it stays counted: after a reload that ends `observe`, later requests
    // wait for its end.
    let unlocked = running.filter(|_| observes);
    let running = unlocked.clone();
    let keyed = KeyedRequest {
        http,
        context,
        plan,
        upstream,
        route,
        source,
        identity,
        trace,
        has_override,
        unlocked,
        fenced,
    };
    let served = next.handle(keyed).await;
    // The body of the answer keeps the count. A tunnel has no such body and keeps a count of its own.
    match running {
        Some(running) => served.map(|reply| reply.map(|body| body.keep_until_complete(running))),
        None => served,
    }
}

/// Takes the values that the templates of a request's fence could use; none if the request has reached no fenced
/// route.
pub type SourceValueRecorder = Rc<RefCell<Vec<SourceValue>>>;

/// Records the values of which the next step makes keys, also if that step fails.
pub(crate) async fn record_source_values<S: Handler<BufferedRequest<AuthenticatedRequest>>>(
    recorder: &SourceValueRecorder,
    request: BufferedRequest<AuthenticatedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    recorder.replace(source_values(&request.0));
    next.handle(request).await
}

fn source_values(request: &AuthenticatedRequest) -> Vec<SourceValue> {
    let routed = &request.routed;
    let route = routed.route.map(|id| routed.plan.routes.get(id));
    let Some((route, fence)) = route.and_then(|route| Some((route, route.fence.as_ref()?))) else {
        return Vec::new();
    };
    let read = fence.reads_body().then(|| parse_body(&routed.http, fence)).transpose();
    let (body, unread) = match read {
        Ok(body) => (body, None),
        Err(refusal) => (None, Some(refusal.detail)),
    };
    let values = request_values(request, route, body.as_ref());
    let mut found = fence.source_values(routed.http.method().as_str(), &values);
    if let Some(reason) = unread {
        use TemplateValueSource::{Body, Form, FormList};
        let is_of_body = |value: &&mut SourceValue| matches!(value.source, Body(_) | Form(_) | FormList(_));
        found.iter_mut().filter(is_of_body).for_each(|value| value.error = Some(reason.to_string()));
    }
    found
}

/// The values of a request for the templates of the fence of `route`.
fn request_values<'r>(
    AuthenticatedRequest { routed, identity }: &'r AuthenticatedRequest,
    route: &'r Route,
    body: Option<&'r BodyValues>,
) -> RequestParameters<'r> {
    RequestParameters {
        bound: Some(route.bind(&routed.path)),
        query: routed.http.uri().query(),
        headers: routed.http.headers(),
        host: routed.host.name(),
        identity: identity.as_deref(),
        body,
        condition_body: None,
    }
}

fn request_lock(request: &AuthenticatedRequest) -> Result<Option<RequestLockSpec>, Refusal> {
    let routed = &request.routed;
    let Some(id) = routed.route else { return Ok(None) };
    let route = routed.plan.routes.get(id);
    let Some(fence) = &route.fence else { return Ok(None) };
    let ExpandedFenceTemplates { keys, operation, share_client } = expand_keys(request, route, fence)?;
    if keys.is_empty() {
        // With `empty: pass` the keys may be empty: the request names no resource, so it has no lock and no token.
        return Ok(None);
    }
    let RequestIdempotency { header: operation, name: operation_name, certificate } = operation;
    let sites = fence.sites(&keys).map_err(|bad| Refusal::from_key_error(&bad))?.into();
    let mode = fence.mode.mode(routed.http.method().as_str());
    let running = routed.running.clone().expect("the route fences");
    let operation = operation.map(Rc::new);
    Ok(Some(RequestLockSpec {
        route: id,
        keys,
        sites,
        mode,
        operation,
        operation_name,
        certificate,
        share_client,
        running,
    }))
}

/// The results of a fence's templates for one request.
struct ExpandedFenceTemplates {
    keys: Rc<[ResourceKey]>,
    operation: RequestIdempotency,
    share_client: Option<Arc<str>>,
}

fn expand_keys(
    request: &AuthenticatedRequest,
    route: &Route,
    fence: &FenceRule,
) -> Result<ExpandedFenceTemplates, Refusal> {
    let routed = &request.routed;
    let body = fence.reads_body().then(|| parse_body(&routed.http, fence)).transpose()?;
    let values = request_values(request, route, body.as_ref());
    let keys = fence.expand_all(&values).map_err(|bad| Refusal::from_key_error(&bad))?;
    let http = &routed.http;
    let content =
        http.body().bytes().map(|bytes| CompleteBody { said: content_headers(http.headers()), bytes });
    refuse_conflicting_parameters(fence, http.method(), &values, content)?;
    let share_client = fence.share_client(&values).map_err(|bad| Refusal::from_key_error(&bad))?;
    let operation = derive_operation(routed, fence, &values)?;
    Ok(ExpandedFenceTemplates { keys: keys.into(), operation, share_client: share_client.map(Arc::from) })
}

/// The operation of a request; without a header if its route has no `once` or its client names no operation.
#[derive(Default)]
struct RequestIdempotency {
    header: Option<FencingOperationHeader>,
    name: Option<ClientOperationName>,
    /// The digest of the certificate that the fingerprint contains.
    certificate: Option<Arc<str>>,
}

fn derive_operation(
    routed: &RoutedRequest,
    fence: &FenceRule,
    values: &RequestParameters<'_>,
) -> Result<RequestIdempotency, Refusal> {
    let Some(once) = fence.once_rule(routed.http.method().as_str()) else {
        return Ok(RequestIdempotency::default());
    };
    let named = once.operation_name(values).map_err(|bad| Refusal::from_name_error(&bad))?;
    let certificate = once.principal.is_none().then(|| certificate_digest(&routed.source)).flatten();
    let credentials = match &once.principal {
        None => name::FingerprintCredentials::from_request(routed.http.headers(), certificate.as_deref()),
        Some(_) => name::FingerprintCredentials::default(),
    };
    let wanted = name::FingerprintInput {
        credentials: &credentials,
        method: routed.http.method().as_str(),
        target: routed.http.uri().path_and_query().map_or("/", |target| target.as_str()),
        body: routed.http.body().bytes().expect("the body of a fenced request is here in full"),
    };
    let upstream = &routed.plan.upstream(routed.upstream).name;
    let header = named.as_ref().map(|named| name::operation_header(upstream, once, named, wanted));
    Ok(RequestIdempotency { header, name: named, certificate })
}

/// The digest of the identity in the client's certificate. In a forwarded request the other gateway has written
/// it.
fn certificate_digest(source: &RequestSource) -> Option<Arc<str>> {
    match &source.forwarded {
        Some(forwarded) => forwarded.certificate.clone(),
        None => source.client_certificate().map(|identity| name::certificate_digest(identity).into()),
    }
}

fn parse_body(http: &Request<Body>, fence: &FenceRule) -> Result<BodyValues, Refusal> {
    // The body is in memory, because the policy allows no streaming where a key is taken from the body.
    let Some(bytes) = http.body().bytes() else {
        return Err(Refusal::new(RefusalReason::BodyTooLarge, "a body with a key in it is not here in full"));
    };
    fence
        .parse_body(&content_headers(http.headers()), bytes)
        .map_err(|bad| Refusal::new(RefusalReason::KeyInvalid, bad.to_string()))
}
