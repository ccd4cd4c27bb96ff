//! Takes the lock of a request that another proxy forwards, and reports to that proxy the fields to stamp on the
//! request; for installations that cannot put one more proxy in the path. The lock is held until that proxy reports the
//! end of the request, or until the time of the lock is over.
//!
//! This promises less than forwarding by the gateway: the other proxy is not stopped from writing after the lock is
//! lost, and only a guard, or a service that compares tokens, refuses a late request.

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

/// The path segment of this interface, below [`PREFIX`]. The path of the original request may follow it.
pub const PATH: &str = "auth";

/// The query of a subrequest by the other proxy.
#[derive(Debug, Default, Deserialize)]
struct ForwardAuthLockQuery {
    /// How long the lock is held if the end of the request is not reported. It must be longer than the other proxy
    /// waits for its upstream.
    ttl_ms: Option<u64>,
    /// In the report of an end: the status with which the other proxy has answered.
    status: Option<u16>,
    /// In the report of an end: `OK` if the whole answer has been sent. The status alone was sent before the body.
    completed: Option<String>,
    /// The status to use for every refusal, for proxies that pass on only some statuses.
    refuse: Option<u16>,
}

/// Answers a subrequest of the other proxy: takes a lock, or ends the lock whose lease `head` shows.
///
/// # Errors
/// Returns an error if the original request must not be forwarded now, or if the end could not be recorded.
pub(crate) async fn answer_forward_auth(
    interface: &LeaseApiState,
    caller: &LeaseCaller,
    head: &Parts,
) -> Result<Reply, Refusal> {
    let behind = original_target(&head.uri);
    let query = match behind {
        // The original target stands behind our path, so the query is that of the original request.
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

/// Ends the lock after the other proxy has answered its client or has given up.
async fn end_lock(
    interface: &LeaseApiState,
    caller: &LeaseCaller,
    head: &Parts,
    query: &ForwardAuthLockQuery,
) -> Result<Reply, Refusal> {
    let id = match lease_id(&head.headers) {
        Ok(id) => id,
        // Without a lease the request was on an unfenced route, so no lock was held.
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
    // If the lease was not released, the upstream may still be at work, so the lock is held until its time is over.
    Ok(status_reply(StatusCode::NO_CONTENT))
}

/// True if this status shows that the upstream has ended the request. A proxy makes some statuses itself, because its
/// upstream was silent or broke off, or because its client disconnected: nginx logs 499, and 0 if there was no answer
/// yet. They say nothing of the upstream.
///
/// The calling proxy is such a proxy, so its statuses count whatever the policy lists. A lease does not know its
/// upstream, so a status that any upstream lists as unfinished counts for all.
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
    // These are the settings that the process runs with: a new file without leases takes effect only at a restart.
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
    // The request is counted before the lease begins, so that a reload that begins later waits for it.
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
    let mut id = HeaderValue::from_str(&lease.id.to_secret_text()).expect("base64url and dots");
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

/// Returns the target of the original request, with its query, if it stands behind our path.
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

/// Refuses a route that needs the identity of the client. The client's connection ends at the other proxy, and
/// `Authorization` is that proxy's own, so nothing about the client can be verified here.
///
/// # Errors
/// Returns an error if the route reads the identity of the client, or if its upstream gets the name of the client: the
/// other proxy would send that field as the client wrote it.
fn check_route_needs_no_identity(route: &Route, upstream: &Upstream) -> Result<(), Refusal> {
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

/// The fields in which other proxies name the method, the target and the host of the request. nginx writes those that
/// its configuration names; Traefik and Caddy write the second of each pair. Envoy sends method and host as its own,
/// and the target behind our path; there a client may have written these fields, so they are ignored.
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
                // The method must be named by a field: that of the subrequest itself says nothing about the original
                // request.
                let method = named(&METHODS)?.ok_or_else(|| malformed("no method"))?;
                let method = method.parse().map_err(|_| malformed("the method"))?;
                (method, target, named(&HOSTS)?.or_else(own_host))
            }
        };
        let uri: Uri = target.parse().map_err(|_| malformed("the target"))?;
        let host = CanonicalHost::parse(host.unwrap_or_default()).map_err(|_| malformed("the host"))?;
        Ok(Self { method, uri, host, headers })
    }

    /// Finds the route of the original request, and its keys. `None` for a route without a lock.
    ///
    /// # Errors
    /// Returns an error if the gateway would refuse the request when it forwarded the request itself, or if the key
    /// cannot be derived.
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
        // The other proxy does not send the body here, so a route that is chosen by the body cannot be found.
        let found =
            plan.routes.find(self.method.as_str(), &path, &values).map_err(|bad| unclear_route(&bad))?;
        let found = found.ok_or_else(|| Refusal::new(RefusalReason::NoRoute, "no route matches"))?;
        let route = plan.routes.get(found.route.id);
        // This is checked for unfenced routes as well: the service may take the request for one of a fenced route.
        if let Some(ambiguous) = find_ambiguity(&self.method, &path, find_override(self.headers))
            && config.is_service_protected(route.upstream).await
        {
            return Err(ambiguous);
        }
        let method = self.method.as_str();
        if let Some(second) =
            plan.find_alternate_reading(method, &path, &values, Some(&found), route.upstream)
        {
            return Err(second_reading_refusal(second));
        }
        check_route_needs_no_identity(route, plan.upstream(route.upstream))?;
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
            // With `empty: pass` the keys may be empty: the request names no resource, so it needs no lock.
            return Ok(None);
        }
        let mode = fence.mode.mode(self.method.as_str());
        Ok(Some(ForwardAuthLockTarget { keys, mode, fence, upstream: route.upstream }))
    }
}
