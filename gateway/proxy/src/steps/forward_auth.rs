//! Takes the lock of a request that another proxy forwards, and reports to that proxy the fields to stamp on it; for
//! installations that cannot put one more proxy in the path. The lock is held until that proxy reports the end, or
//! until its time is over.
//!
//! Less is promised than where we forward: the other proxy is not stopped from writing after the lock is lost, and
//! only a guard, or a service that compares tokens, refuses a late request.

use axum::extract::Query;
use fencegate_config::active_config::ActiveConfig;
use fencegate_http::body::{Body, Reply};
use fencegate_leases::{
    LeaseApiState, LeaseCaller, PREFIX,
    api::{client::check_ttl, context::lease_id, grant::HeldLease},
    auth::may_take,
    lease::LeaseSpec,
};
use fencegate_policies::{
    host::CanonicalHost,
    key::ResourceKey,
    path::CanonicalPath,
    plan::{CommonServingPlan, FenceRule, InconclusiveStatuses, LockMode, Route, Upstream, UpstreamId},
};
use fencegate_protocol::headers::{FENCING_LEASE, FENCING_TICKET};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Method, Response, StatusCode, Uri,
    header::{HOST, HeaderName, HeaderValue},
    http::request::Parts,
};
use serde::Deserialize;

use super::{
    buffer::refuse_early_data,
    forward::write_claim_headers,
    parameters::{RequestParameters, refuse_conflicting_parameters},
    route::{find_ambiguity, find_override, second_reading_refusal, unclear_route},
};

/// Below [`PREFIX`]; the rest of the path may be the path of the request.
pub const PATH: &str = "auth";

/// The query of the other proxy.
#[derive(Debug, Default, Deserialize)]
struct ForwardAuthLockQuery {
    /// How long the lock is held if its end is not reported. It must be longer than the other proxy waits for its
    /// upstream.
    ttl_ms: Option<u64>,
    /// At the end: the status that the other proxy has answered.
    status: Option<u16>,
    /// Of an end: `OK` where the whole answer has left. The status was reported with its head, before the body.
    completed: Option<String>,
    /// The status of a refusal, for proxies that pass on only some statuses.
    refuse: Option<u16>,
}

/// `head`: of the subrequest, with the lease that it shows.
///
/// # Errors
/// The request is not to be forwarded now; or the end could not be recorded.
pub(crate) async fn answer_forward_auth(
    interface: &LeaseApiState,
    caller: &LeaseCaller,
    head: &Parts,
) -> Result<Reply, Refusal> {
    let behind = original_target(&head.uri);
    let query = match behind {
        // The query is that of the request itself.
        Some(_) => ForwardAuthLockQuery::default(),
        None => {
            let query = Query::<ForwardAuthLockQuery>::try_from_uri(&head.uri);
            query.map_err(|bad| Refusal::new(RefusalReason::Malformed, bad.to_string()))?.0
        }
    };
    let refuse = query.refuse;
    let answered = if head.method == Method::DELETE && behind.is_none() {
        end_lock(interface, caller, head, &query).await
    } else {
        take_lock(interface, caller, head, &query).await
    };
    answered.map_err(|refusal| match refuse.filter(|status| (400..600).contains(status)) {
        Some(status) => refusal.with_status(status),
        None => refusal,
    })
}

/// Ends the lock: the other proxy has answered its client or has given up.
async fn end_lock(
    interface: &LeaseApiState,
    caller: &LeaseCaller,
    head: &Parts,
    query: &ForwardAuthLockQuery,
) -> Result<Reply, Refusal> {
    let id = match lease_id(&head.headers) {
        Ok(id) => id,
        // An unfenced route: no lock was held.
        Err(_) if head.headers.get(FENCING_LEASE).is_none_or(HeaderValue::is_empty) => {
            return Ok(status_reply(StatusCode::NO_CONTENT));
        }
        Err(refusal) => return Err(refusal),
    };
    let whole = query.completed.as_ref().is_none_or(|word| word == "OK");
    let plan = interface.leases.config().plan();
    if whole && query.status.is_none_or(|status| is_complete_status(status, &plan.serving.upstreams)) {
        interface.release_lease(interface.locate(caller, id)).await?;
    }
    // Otherwise the upstream may still be at work, so the lock is held until its time is over.
    Ok(status_reply(StatusCode::NO_CONTENT))
}

/// The upstream has ended with this status. A status that a proxy makes itself, because its upstream was silent or
/// broke off, shows nothing of that, nor does one that it makes where its client disconnected: 499 of nginx, and 0
/// before there was an answer.
///
/// The calling proxy is such a proxy itself, so the statuses that it makes count whatever the policy has. A lease
/// does not know its upstream, so the statuses that any of them lists count as well.
fn is_complete_status(status: u16, upstreams: &[Upstream]) -> bool {
    let ends = |unfinished: &InconclusiveStatuses| !unfinished.contains(status);
    (200..600).contains(&status)
        && status != 499
        && ends(&InconclusiveStatuses::default())
        && upstreams.iter().all(|upstream| ends(&upstream.unfinished))
}

async fn take_lock(
    interface: &LeaseApiState,
    caller: &LeaseCaller,
    head: &Parts,
    query: &ForwardAuthLockQuery,
) -> Result<Reply, Refusal> {
    let principal = caller.require_principal()?;
    let starting = || Refusal::new(RefusalReason::LockService, "the gateway is starting");
    let (gateway, config) = interface.leases.config().active_config().ok_or_else(starting)?;
    // Not the settings of the file: one without leases removes none before a restart.
    let settings = interface.leases.settings();
    let bounds = settings
        .bounds
        .as_ref()
        .ok_or_else(|| Refusal::new(RefusalReason::NoRoute, "the policy has no `leases`"))?;
    let original = ForwardAuthOriginalRequest::parse_original_request(head)?;
    let Some(ForwardAuthLockTarget { keys, mode, fence, upstream }) =
        original.fence_target(&gateway.serving, &config).await?
    else {
        return Ok(status_reply(StatusCode::OK));
    };
    if !may_take(principal, &keys) {
        let detail = format!("`{}` may not take this key", principal.name);
        return Err(Refusal::new(RefusalReason::LeaseForbidden, detail));
    }
    let wait = fence.wait.min(bounds.max_wait);
    // Counted before the lease is begun: a reload that begins later waits for it.
    let request = Some(config.track_request(upstream));
    let wanted = LeaseSpec {
        request,
        placed: interface.check_lease_locks(gateway.clone(), &keys, mode, None).await?,
        permits: None,
        keys: keys.into(),
        mode,
        ttl: check_ttl(query.ttl_ms, bounds.default_ttl, bounds)?,
        principal: principal.name.clone(),
        note: Some("forward_auth".into()),
        max_age: bounds.max_age,
        unheard: wait,
        name: None,
    };
    let held = interface.acquire_held(wanted, wait).await;
    let held = held.map_err(|refusal| match refusal.reason {
        RefusalReason::Locked => refusal.with_status(fence.locked_status),
        _ => refusal,
    })?;
    let mut reply = status_reply(StatusCode::OK);
    stamp_lease_headers(reply.headers_mut(), interface, &held, gateway.serving.upstream(upstream));
    Ok(reply)
}

fn stamp_lease_headers(
    headers: &mut HeaderMap,
    interface: &LeaseApiState,
    held: &HeldLease,
    upstream: &Upstream,
) {
    let HeldLease { lease, lock, .. } = held;
    let token = lock.token();
    let keys = lease.keys_with_permit(lock);
    write_claim_headers(headers, token, &keys, lease.mode, upstream);
    let tickets = interface.tickets.as_ref();
    if let Some(ticket) = tickets.and_then(|known| known.ticket(&keys, token, lease.mode, lock.session_id()))
    {
        headers.insert(FENCING_TICKET, ticket);
    }
    let mut id = HeaderValue::from_str(&lease.id.reveal()).expect("base64url and dots");
    id.set_sensitive(true);
    headers.insert(FENCING_LEASE, id);
}

fn status_reply(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = status;
    reply
}

/// The original request, as the other proxy describes it.
struct ForwardAuthOriginalRequest<'h> {
    method: Method,
    uri: Uri,
    host: CanonicalHost,
    headers: &'h HeaderMap,
}

/// The target of the request, with its query, where it stands behind our path.
fn original_target(uri: &Uri) -> Option<&str> {
    let target = uri.path_and_query()?.as_str();
    let behind = target.strip_prefix(PREFIX).and_then(|below| below.strip_prefix(PATH))?;
    behind.starts_with('/').then_some(behind)
}

/// The fence of the request's route.
struct ForwardAuthLockTarget<'p> {
    keys: Vec<ResourceKey>,
    mode: LockMode,
    fence: &'p FenceRule,
    upstream: UpstreamId,
}

/// Nothing is verified here of the client of the other proxy: its connection ends there, and `Authorization` is that of the
/// proxy.
///
/// # Errors
/// The route asks who the client is, or its upstream gets the name of the client: the other proxy would send the field as the
/// client wrote it.
fn check_unidentified(route: &Route, upstream: &Upstream) -> Result<(), Refusal> {
    let takes_name = route.fence.as_ref().is_some_and(|fence| fence.client_name.is_some());
    let tells_name = upstream.identity_fields.client_name.is_some();
    let reason = if route.reads_token {
        RefusalReason::BearerMissing
    } else if takes_name || tells_name || !route.allow.is_empty() {
        RefusalReason::CertificateRequired
    } else {
        return Ok(());
    };
    Err(Refusal::new(reason, "its route asks who the client is, which is not verified behind another proxy"))
}

/// The fields in which other proxies name the method, the target and the host of the request: nginx by its
/// configuration; Traefik and Caddy the second of each. Envoy sends method and host as they are, and the target
/// behind our path; there a client may have written these fields, and they are ignored.
const METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
const TARGETS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-forwarded-uri")];
const HOSTS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-host"), HeaderName::from_static("x-forwarded-host")];

impl<'h> ForwardAuthOriginalRequest<'h> {
    fn parse_original_request(head: &'h Parts) -> Result<Self, Refusal> {
        let headers = &head.headers;
        let malformed =
            |what: &str| Refusal::new(RefusalReason::Malformed, format!("{what} of the original request"));
        let named = |names: &[HeaderName]| -> Result<Option<&'h str>, Refusal> {
            let mut lines = names.iter().flat_map(|name| headers.get_all(name));
            let Some(line) = lines.next() else { return Ok(None) };
            let alone = lines.next().is_none();
            line.to_str().ok().filter(|_| alone).map(Some).ok_or_else(|| malformed("two names"))
        };
        let own_host = || headers.get(HOST)?.to_str().ok();
        let (method, target, host) = match original_target(&head.uri) {
            Some(target) => (head.method.clone(), target, own_host()),
            None => {
                let target = named(&TARGETS)?.ok_or_else(|| malformed("no target"))?;
                // The method of the subrequest is its own: it must not replace one that is missing.
                let method = named(&METHODS)?.ok_or_else(|| malformed("no method"))?;
                let method = method.parse().map_err(|_| malformed("the method"))?;
                (method, target, named(&HOSTS)?.or_else(own_host))
            }
        };
        let uri: Uri = target.parse().map_err(|_| malformed("the target"))?;
        let host = CanonicalHost::parse(host.unwrap_or_default()).map_err(|_| malformed("the host"))?;
        Ok(Self { method, uri, host, headers })
    }

    /// `None` for a route without a lock.
    ///
    /// # Errors
    /// The gateway would refuse the request as well, if it forwarded the request itself; or the key cannot be derived.
    async fn fence_target<'p>(
        &self,
        plan: &'p CommonServingPlan,
        config: &ActiveConfig,
    ) -> Result<Option<ForwardAuthLockTarget<'p>>, Refusal> {
        let path = CanonicalPath::parse(self.uri.path());
        let query = self.uri.query();
        let host = self.host.name();
        let headers = self.headers;
        let values = RequestParameters {
            bound: None,
            query,
            headers,
            host,
            identity: None,
            body: None,
            condition_body: None,
        };
        // A route that is chosen by the body is not known here: the other proxy does not send it.
        let found =
            plan.routes.find(self.method.as_str(), &path, &values).map_err(|bad| unclear_route(&bad))?;
        let found = found.ok_or_else(|| Refusal::new(RefusalReason::NoRoute, "no route matches"))?;
        let route = plan.routes.get(found.route.id);
        // Checked for unfenced routes as well: the service may take the request for one of a fenced route.
        if let Some(ambiguous) = find_ambiguity(&self.method, &path, find_override(self.headers))
            && config.is_service_protected(route.upstream).await
        {
            return Err(ambiguous);
        }
        let method = self.method.as_str();
        if let Some(second) = plan.find_second_reading(method, &path, &values, Some(&found), route.upstream) {
            return Err(second_reading_refusal(second));
        }
        check_unidentified(route, plan.upstream(route.upstream))?;
        let Some(fence) = &route.fence else { return Ok(None) };
        refuse_early_data(self.headers)?;
        if fence.reads_body() {
            return Err(Refusal::new(
                RefusalReason::KeyInvalid,
                "the key is taken from the body, which is not here",
            ));
        }
        let values = RequestParameters { bound: Some(route.bind(&path)), ..values };
        let keys = fence.expand_all(&values).map_err(|bad| Refusal::from_key_error(&bad))?;
        refuse_conflicting_parameters(fence, &self.method, &values, None)?;
        if keys.is_empty() {
            // `empty: pass`: the request names no resource.
            return Ok(None);
        }
        let mode = fence.mode.mode(self.method.as_str());
        Ok(Some(ForwardAuthLockTarget { keys, mode, fence, upstream: route.upstream }))
    }
}
