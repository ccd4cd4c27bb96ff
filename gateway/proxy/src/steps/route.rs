//! Finds the route and the upstream of a request. After this step host and path do not change.

use std::{error::Error, rc::Rc};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    host::CanonicalHost,
    key::{CompleteBody, RouteConditionBody},
    path::CanonicalPath,
    plan::{
        AlternateRequestReading, CommonServingPlan, FenceRule, FencingLevel, FindRouteError, LargeBodyPolicy,
        RouteId, UnmatchedRequestPolicy, UpstreamId, is_spelling_of,
    },
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Method, Request, Uri,
    header::{HeaderName, HeaderValue},
    http::uri::{Parts, PathAndQuery},
};

use crate::{
    handler::Handler,
    plan_context::WorkerPlanContext,
    request_context::{
        PlanHandle, RequestContext, RequestSource, RequestTraceIds, RoleSpecificRequestFacts, RouteFacts,
    },
    steps::{
        buffer::{BodyBufferConfig, buffer_body},
        bufferable::BufferableRequest,
        hop::IdentifiedRequest,
        parameters::{RequestParameters, content_headers, cookie_lines},
        trace::TracedRequest,
    },
};

/// A request with its route and upstream. Host and path are those that will be forwarded.
pub(crate) struct RoutedRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
    /// `None` for a request that matches no route and that the plan lets pass.
    pub route: Option<RouteId>,
    pub upstream: UpstreamId,
    /// Counts the request as running, on fenced routes.
    pub running: Option<Rc<RunningRequestGuard>>,
    pub source: Rc<RequestSource>,
    pub trace: Rc<RequestTraceIds>,
    /// True if a field of the request overrides its method or path.
    pub has_override: bool,
    /// True if the route was chosen by the body, which was buffered in full for that.
    pub is_buffered: bool,
}

impl RoutedRequest {
    /// The fence of the route; `None` on unfenced routes.
    pub(crate) fn fence(&self) -> Option<&FenceRule> {
        self.plan.routes.get(self.route?).fence.as_ref()
    }
}

impl BufferableRequest for RoutedRequest {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn needs_full_body(&self) -> bool {
        self.fence().is_some()
    }

    fn is_buffered(&self) -> bool {
        self.is_buffered
    }

    fn large_body_policy(&self) -> LargeBodyPolicy {
        self.fence().map(|fence| fence.large_bodies).unwrap_or_default()
    }
}

/// The routes of a plan, and the state with which they are looked up.
#[derive(Clone)]
pub struct RoutingTable {
    context: Rc<WorkerPlanContext>,
    plan: PlanHandle,
    /// Buffers the bodies by which a route is chosen.
    buffering: BodyBufferConfig,
}

impl RoutingTable {
    pub fn new(context: Rc<WorkerPlanContext>) -> Self {
        let buffering = BodyBufferConfig::new(&context);
        Self { plan: Rc::new(context.config.plan.clone()), context, buffering }
    }
}

/// The route and the upstream of a request.
struct RouteTarget {
    /// `None` for a request that matches no route and that the plan lets pass.
    route: Option<RouteId>,
    upstream: UpstreamId,
    /// Set if some services read the request as one of another route, which has a fence or another `allow`.
    second_reading: Option<AlternateRequestReading>,
}

/// The result of looking up a route.
enum RouteLookup {
    Target(RouteTarget),
    /// The body decides between these routes.
    BodyNeeded(Vec<RouteId>),
}

pub(crate) async fn route_request<S: Handler<RoutedRequest>>(
    routing: &RoutingTable,
    TracedRequest { request, trace }: TracedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let RoutingTable { context: shared, plan, buffering } = routing;
    let WorkerPlanContext { config, metrics, .. } = &**shared;
    let IdentifiedRequest { mut http, context, mut entry, host, path, source, .. } = request;
    let (target, candidates_running) = match look_up(plan, &http, &path, &host, None)? {
        RouteLookup::Target(target) => (target, None),
        RouteLookup::BodyNeeded(candidates) => {
            // The request may belong to any of these routes, so it counts for each until the body has decided. Then
            // `entry` can be dropped: a reload waits no longer than for a request whose body is buffered after its
            // route is known.
            let fenced = candidates.iter().map(|id| plan.routes.get(*id)).filter(|one| one.fence.is_some());
            let running: Vec<_> = fenced.map(|one| config.track_request(one.upstream)).collect();
            drop(entry.take());
            let decided = decide_by_body(buffering, plan, &mut http, &path, &host, &candidates);
            (Box::pin(decided).await?, Some(running))
        }
    };
    let is_buffered = candidates_running.is_some();
    let RouteTarget { route, upstream, second_reading } = target;
    let counted = route.map_or(metrics.unrouted(), |id| metrics.route(id));
    context
        .subject
        .get_or_init(|| RoleSpecificRequestFacts::Route(RouteFacts::new(route, counted.track_in_flight())));
    let overridden = find_override(http.headers());
    let has_override = overridden.is_some();
    if let Some(ambiguous) = find_ambiguity(http.method(), &path, overridden)
        && config.is_service_protected(upstream).await
    {
        return Err(ambiguous);
    }
    if let Some(second_reading) = second_reading {
        return Err(second_reading_refusal(second_reading));
    }
    if is_guard_path(&path) && is_guarded(plan, upstream) {
        return Err(Refusal::new(RefusalReason::NoRoute, "a guard is asked by gateways only"));
    }
    let fenced = route.filter(|route| plan.routes.get(*route).fence.is_some());
    context.mark_route_fenced(fenced.is_some());
    let running = fenced.map(|_| Rc::new(config.track_request(upstream)));
    // The entry is dropped only after the request is counted for its route: until here a reload waits for the entry.
    drop((entry, candidates_running));
    set_origin_form(&mut http, path.as_str());
    next.handle(RoutedRequest {
        http,
        context,
        plan: plan.clone(),
        host,
        path,
        route,
        upstream,
        running,
        source,
        trace,
        has_override,
        is_buffered,
    })
    .await
}

/// Finds the route of a request. `body` is there if it was read for the conditions of the routes that may take the
/// request.
fn look_up(
    plan: &CommonServingPlan,
    http: &Request<Body>,
    path: &CanonicalPath,
    host: &CanonicalHost,
    body: Option<&RouteConditionBody>,
) -> Result<RouteLookup, Refusal> {
    let method = http.method().as_str();
    let values = RequestParameters { condition_body: body, ..head_parameters(http, host) };
    let found = match plan.routes.find(method, path, &values) {
        Ok(found) => found,
        Err(FindRouteError::BodyNeeded(candidates)) => return Ok(RouteLookup::BodyNeeded(candidates)),
        Err(unclear @ FindRouteError::Unclear(_)) => return Err(unclear_route(&unclear)),
    };
    let upstream = match (&found, plan.unmatched) {
        (Some(found), _) => found.route.upstream,
        (None, UnmatchedRequestPolicy::Pass(upstream)) => upstream,
        (None, UnmatchedRequestPolicy::Reject) => {
            return Err(Refusal::new(RefusalReason::NoRoute, "no route matches"));
        }
    };
    // If a second reading of the request leads to routes whose conditions need a body that was not read, each of these
    // routes counts as one that may take the request.
    let second_reading = plan.find_alternate_reading(method, path, &values, found.as_ref(), upstream);
    let route = found.map(|found| found.route.id);
    Ok(RouteLookup::Target(RouteTarget { route, upstream, second_reading }))
}

fn head_parameters<'a>(http: &'a Request<Body>, host: &'a CanonicalHost) -> RequestParameters<'a> {
    RequestParameters {
        bound: None,
        query: http.uri().query(),
        headers: http.headers(),
        host: host.name(),
        identity: None,
        body: None,
        condition_body: None,
    }
}

/// Buffers the body, and finds the one of `candidates` that takes the request. A request whose body cannot be read is
/// refused, and not sent to another route.
async fn decide_by_body(
    buffering: &BodyBufferConfig,
    plan: &CommonServingPlan,
    http: &mut Request<Body>,
    path: &CanonicalPath,
    host: &CanonicalHost,
    candidates: &[RouteId],
) -> Result<RouteTarget, Refusal> {
    if http.body().bytes() != Some(&[]) {
        buffer_body(buffering, http, LargeBodyPolicy::Refuse).await?;
    }
    let Some(bytes) = http.body().bytes() else {
        return Err(Refusal::new(
            RefusalReason::BodyTooLarge,
            "a body that decides the route is not here in full",
        ));
    };
    let declared = content_headers(http.headers());
    let body = plan.routes.read_body(candidates, &declared, bytes, http.uri().query());
    let body = body.map_err(|bad| unclear_route(&bad))?;
    let cookies = cookie_lines(http.headers());
    let content = CompleteBody { said: declared, bytes };
    let head = head_parameters(http, host);
    let compared = plan.routes.compare_body_sources(candidates, &body, content, path, &cookies, &head);
    compared.map_err(|bad| unclear_route(&bad))?;
    match look_up(plan, http, path, host, Some(&body))? {
        RouteLookup::Target(target) => Ok(target),
        RouteLookup::BodyNeeded(candidates) => Err(unclear_route(&FindRouteError::BodyNeeded(candidates))),
    }
}

/// Refuses a request if it cannot be decided which route takes it.
pub(super) fn unclear_route(why: &dyn Error) -> Refusal {
    Refusal::new(RefusalReason::Malformed, format!("which route takes it: {why}"))
}

/// Returns the refusal of a request that can be read in two ways. The service may read it as one that belongs to a
/// route with a fence or an `allow`. So it is never sent to a service with such a route, whichever route matches it
/// here.
pub(super) fn find_ambiguity(
    method: &Method,
    path: &CanonicalPath,
    overridden: Option<(RefusalReason, &'static str)>,
) -> Option<Refusal> {
    if let Some(ambiguity) = path.ambiguity() {
        return Some(Refusal::new(RefusalReason::AmbiguousPath, ambiguity.to_string()));
    }
    if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        // No route can name this method, but the service may take `post` for `POST`.
        return Some(Refusal::new(RefusalReason::Method, "a method in lower case"));
    }
    let (reason, name) = overridden?;
    Some(Refusal::new(reason, format!("the field `{name}`")))
}

/// Refuses a request that a service may read as one of a protected route.
pub(super) fn second_reading_refusal(second: AlternateRequestReading) -> Refusal {
    let (reason, detail) = match second {
        AlternateRequestReading::Suffix => (
            RefusalReason::AmbiguousPath,
            "without its suffix or its last dots it is the path of a route with a fence or an `allow`, which some servers take it for",
        ),
        AlternateRequestReading::Spelling => (
            RefusalReason::AmbiguousPath,
            "in another case, or with or without a slash at its end, it is the path of a route with an `allow`, which some servers take it for",
        ),
        AlternateRequestReading::Get => (
            RefusalReason::Method,
            "servers answer `HEAD` as they answer `GET`, and `GET` of this path belongs to a route with an `allow`",
        ),
    };
    let refusal = Refusal::new(reason, detail);
    match second {
        AlternateRequestReading::Get => refusal.with_allow(HeaderValue::from_static("GET")),
        AlternateRequestReading::Suffix | AlternateRequestReading::Spelling => refusal,
    }
}

/// True if a guard stands in front of the service of this upstream.
fn is_guarded(plan: &CommonServingPlan, upstream: UpstreamId) -> bool {
    let service = plan.upstream(upstream).service.id;
    plan.upstreams.iter().any(|other| other.service.id == service && other.fencing == FencingLevel::Guard)
}

/// True for a path of the interface of guards, which is for gateways only. A guard compares case, but a server in front
/// of it may not.
fn is_guard_path(path: &CanonicalPath) -> bool {
    path.segments().next().is_some_and(|first| first.eq_ignore_ascii_case(".fencegate"))
}

/// Finds a field that overrides method or path. If the service obeys such a field, it serves another request than the
/// one whose route was found here.
pub(crate) fn find_override(headers: &HeaderMap) -> Option<(RefusalReason, &'static str)> {
    const METHOD: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];
    const PATH: [&str; 2] = ["x-original-url", "x-rewrite-url"];
    headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with('x')).find_map(|name| {
        let named = |known: &&&str| is_spelling_of(name, known);
        let method = METHOD.iter().find(named).map(|known| (RefusalReason::Method, *known));
        method.or_else(|| PATH.iter().find(named).map(|known| (RefusalReason::AmbiguousPath, *known)))
    })
}

/// Replaces the target by the path from which the key was derived, so that exactly that path is forwarded.
pub(super) fn set_origin_form(http: &mut Request<Body>, path: &str) {
    let uri = http.uri();
    if uri.authority().is_none() && uri.path() == path {
        return;
    }
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = Parts::default();
    parts.path_and_query = PathAndQuery::try_from(target).ok();
    *http.uri_mut() = Uri::from_parts(parts).expect("made of pieces of a valid target");
}
