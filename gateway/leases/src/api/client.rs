//! The calls of a client for its lease: request it, read it, renew it, release it.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode, Uri, header::LOCATION},
    response::{IntoResponse, Response},
};
use fencegate_config::current_config::{plan_delays_key_release, site_in_plan};
use fencegate_policies::{
    key::{ParseKeyError, ResourceKey},
    permits::PermitCount,
    plan::{self, GatewayPlan, LockLocation, LockMode},
    prefer,
};
use fencegate_process::display::is_single_line;
use fencegate_protocol::lease_documents::{
    AcquireLeaseBody, LeaseDocument, OVER, RenewLeaseBody, is_election_key,
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::header::HeaderValue;

use super::{
    context::{
        LeaseApiState, LeaseCaller, LeaseLocation, PREFIX, json_response, parse_body, parse_optional_body,
    },
    watch::LeaseWatchOptions,
};
use crate::{
    auth::may_take,
    lease::{CheckedLeaseLocks, LeaseEndReason, LeaseIdempotencyKey, LeaseSpec, site_for_permits},
    peer_client::PeerRequest,
};

/// The most bytes of the name of a request.
const MAX_NAME_LEN: usize = 255;
/// The most bytes of a note.
const MAX_NOTE_LEN: usize = 256;

pub(super) async fn acquire(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let plan = interface.leases.config().plan();
    let settings = interface.leases.settings();
    let Some(bounds) = &settings.bounds else {
        return Err(Refusal::new(RefusalReason::NoRoute, "the policy has no `leases`"));
    };
    let principal = caller.require_principal()?;
    let request: AcquireLeaseBody = parse_body(&body)?;
    let keys = parse_keys(&plan, &request.keys)?;
    if !may_take(principal, &keys) {
        return Err(Refusal::new(
            RefusalReason::LeaseForbidden,
            format!("`{}` may not take these keys", principal.name),
        ));
    }
    if request.mode == LockMode::Shared && keys.iter().any(is_election_key) {
        return Err(Refusal::new(
            RefusalReason::LeaseForbidden,
            "an election has one leader: its key is not shared",
        ));
    }
    let wait = request.wait_ms.map(Duration::from_millis);
    if wait.is_some_and(|wait| wait > bounds.max_wait) {
        return Err(malformed("`wait_ms` is above `leases.max_wait` of the policy"));
    }
    let in_time = !prefers_async(&headers);
    let name = parse_grant_name(&headers, &body)?;
    let repeated = match &name {
        Some(name) => interface.leases.find_repeated(&principal.name, name)?,
        None => None,
    };
    let delivery = match repeated {
        Some(delivery) => delivery,
        None => {
            let permits = request.permits.map(parse_permits).transpose()?;
            let wanted = LeaseSpec {
                placed: interface.check_lease_locks(plan, &keys, request.mode, permits).await?,
                permits,
                keys: keys.into(),
                mode: request.mode,
                ttl: check_ttl(request.ttl_ms, bounds.default_ttl, bounds)?,
                principal: principal.name.clone(),
                note: request.note.map(parse_note).transpose()?,
                max_age: bounds.max_age,
                unheard: wait.filter(|_| in_time).unwrap_or_default(),
                request: None,
                name,
            };
            let longest = if in_time { Duration::ZERO } else { bounds.max_age };
            interface.leases.begin(wanted, wait.unwrap_or(longest))?
        }
    };
    if !in_time {
        let document = interface.document(delivery.lease());
        return Ok(created_response(StatusCode::ACCEPTED, &document));
    }
    let held = interface.wait_held(delivery, wait.unwrap_or_default()).await?;
    // A repeat gets the answer of the request that it repeats, because its client may not have read that answer.
    Ok(created_response(StatusCode::CREATED, &interface.grant_document(held)))
}

impl LeaseApiState {
    /// Releases a lease, here or at the gateway that holds it. A lease that is over counts as released.
    ///
    /// # Errors
    /// Returns an error if the lease may still be held.
    pub async fn release_lease(&self, found: Result<LeaseLocation, Refusal>) -> Result<(), Refusal> {
        let done = match found {
            Ok(LeaseLocation::Local(lease)) => {
                self.leases.end(&lease, LeaseEndReason::Released);
                return Ok(());
            }
            Ok(LeaseLocation::Remote(id)) => {
                self.ask_peer(id.lease_member_node().to_owned(), PeerRequest::lease_release_request(&id))
                    .await
            }
            Err(refusal) => Err(refusal),
        };
        match done {
            Ok(answer)
                if answer.status().is_success() || answer.status() == StatusCode::PRECONDITION_FAILED =>
            {
                Ok(())
            }
            Ok(answer) => {
                let said = format!("the gateway that holds the lease: {}", answer.status());
                Err(Refusal::new(RefusalReason::LeaseAway, said))
            }
            Err(refusal) if refusal.reason == RefusalReason::StaleToken => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The locks of these keys, as requests take them by `plan`.
    ///
    /// # Errors
    /// Returns an error if a lease cannot hold all of the keys in that way.
    pub async fn check_lease_locks(
        &self,
        plan: Arc<GatewayPlan>,
        keys: &[ResourceKey],
        mode: LockMode,
        permits: Option<PermitCount>,
    ) -> Result<CheckedLeaseLocks, Refusal> {
        let session = self.leases.check_plan_compat(&plan, keys).await?;
        if keys.iter().any(|key| plan_delays_key_release(&plan, key)) {
            let why = "the policy has a route with `fencing: delay` for the key, whose locks are not given on at once";
            return Err(Refusal::new(RefusalReason::LeaseForbidden, why));
        }
        let sites: Vec<_> =
            keys.iter().map(|key| site_for_permits(site_in_plan(&plan, key), key, permits)).collect();
        let several = |site: &LockLocation| site.permits().is_some();
        if sites.iter().any(several) && (mode == LockMode::Shared || keys.iter().any(is_election_key)) {
            let why = "a permit is of a writer, and an election has one leader";
            return Err(Refusal::new(RefusalReason::LeaseForbidden, why));
        }
        if permits.is_some() && sites.iter().any(|site| site.permits() != permits) {
            return Err(Refusal::new(
                RefusalReason::PermitsDiffer,
                "the policy says otherwise how many may hold the key",
            ));
        }
        if keys.len() > 1 && sites.iter().any(|site| *site != LockLocation::Native) {
            let why = "several keys are held at once only where all of them have locks of our own layout";
            return Err(Refusal::new(RefusalReason::LeaseForbidden, why));
        }
        Ok(CheckedLeaseLocks { sites, plan, session })
    }
}

fn created_response(status: StatusCode, document: &LeaseDocument) -> Response {
    let place = format!("{PREFIX}leases/{}", document.reference);
    let place = HeaderValue::from_str(&place).expect("hex digits");
    (status, [(LOCATION, place)], json_response(document)).into_response()
}

pub(super) async fn show(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(reference): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let watching = LeaseWatchOptions::parse(&uri, &headers)?;
    match interface.locate_requested(&caller, &reference, &headers)? {
        LeaseLocation::Local(lease) if watching.streams => Ok(interface.stream_local(lease)),
        LeaseLocation::Local(lease) => {
            watching.wait(&lease, interface.leases.drain()).await;
            Ok(json_response(&interface.document(&lease)))
        }
        LeaseLocation::Remote(id) if watching.streams => Ok(interface.stream_remote(id, headers)),
        LeaseLocation::Remote(id) => {
            let question = PeerRequest::from_client_request(Method::GET, &uri, &headers, Bytes::new());
            let question = PeerRequest { patience: watching.longest, client: caller.client, ..question };
            interface.ask_peer(id.lease_member_node().to_owned(), question).await
        }
    }
}

pub(super) async fn renew(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(reference): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let lease = match interface.locate_requested(&caller, &reference, &headers)? {
        LeaseLocation::Local(lease) => lease,
        LeaseLocation::Remote(id) => {
            let question = PeerRequest::from_client_request(Method::POST, &uri, &headers, body);
            let question = PeerRequest { client: caller.client, ..question };
            return interface.ask_peer(id.lease_member_node().to_owned(), question).await;
        }
    };
    let RenewLeaseBody { ttl_ms } = parse_optional_body(&body)?;
    let before = lease.snapshot().ttl;
    let terms = interface.leases.settings();
    if !terms.authority.still_grants(&lease.principal, &lease.keys) {
        return Err(Refusal::new(
            RefusalReason::LeaseForbidden,
            format!("`{}` may not take these keys any more", lease.principal),
        ));
    }
    let ttl = match &terms.bounds {
        Some(bounds) => check_ttl(ttl_ms, before.clamp(bounds.min_ttl, bounds.max_ttl), bounds)?,
        // The policy grants no new leases, but existing ones continue.
        None => before,
    };
    lease.renew(ttl).ok_or_else(lease_over)?;
    let document = interface.document(&lease);
    if document.state == OVER { Err(lease_over()) } else { Ok(json_response(&document)) }
}

pub(super) async fn release(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let found = interface.locate_requested(&caller, &reference, &headers);
    interface.release_lease(found).await.map(|()| StatusCode::NO_CONTENT.into_response())
}

/// True if the client prefers an answer before the result (`Prefer: respond-async`; RFC 7240, 4.1).
fn prefers_async(headers: &HeaderMap) -> bool {
    prefer::has_respond_async(headers.get_all("prefer").iter().map(HeaderValue::as_bytes))
}

/// The refusal of a malformed key. The client has written the key itself, so the response may contain it.
pub(super) fn invalid_key(bad: &ParseKeyError) -> Refusal {
    Refusal::new(RefusalReason::KeyInvalid, bad.to_string()).with_advice(bad.to_string())
}

fn parse_keys(plan: &GatewayPlan, texts: &[String]) -> Result<Vec<ResourceKey>, Refusal> {
    if !(1..=ResourceKey::MOST_IN_SET).contains(&texts.len()) {
        return Err(malformed(format!("`keys` has 1 to {} keys", ResourceKey::MOST_IN_SET)));
    }
    let keys: Result<Vec<_>, _> = texts.iter().map(|key| plan.serving.parse_key(key)).collect();
    let mut keys = keys.map_err(|bad| invalid_key(&bad))?;
    // `#` precedes the number of a permit: `job#1` would share the watermarks of the second permit of `job`.
    if keys.iter().any(|key| key.as_str().contains('#')) {
        return Err(Refusal::new(RefusalReason::KeyInvalid, "`#` is not for keys"));
    }
    keys.sort_unstable();
    keys.dedup();
    ResourceKey::check_set_size(keys.iter().map(ResourceKey::as_str))
        .map_err(|bad| malformed(format!("of `keys` {bad}")))?;
    Ok(keys)
}

/// The time to live of a lease: the requested one, or the default.
///
/// # Errors
/// Returns an error if the requested time is outside of the bounds.
pub fn check_ttl(
    requested_ms: Option<u64>,
    default_ttl: Duration,
    bounds: &plan::LeaseGrantSettings,
) -> Result<Duration, Refusal> {
    let ttl = requested_ms.map_or(default_ttl, Duration::from_millis);
    if (bounds.min_ttl..=bounds.max_ttl).contains(&ttl) {
        Ok(ttl)
    } else {
        Err(malformed("`ttl_ms` is outside of `leases.min_ttl` and `leases.max_ttl` of the policy"))
    }
}

fn parse_permits(count: u16) -> Result<PermitCount, Refusal> {
    PermitCount::new(count).ok_or_else(|| malformed("`permits` is 2 to 1000"))
}

fn parse_note(note: String) -> Result<Arc<str>, Refusal> {
    if note.len() > MAX_NOTE_LEN || !is_single_line(&note) {
        return Err(malformed(
            "`note` is a line of 256 bytes at most, without characters that turn its direction or are not seen",
        ));
    }
    Ok(note.into())
}

/// The name that the client has given to its request, if any. With quotes and without them it is the same.
fn parse_grant_name(headers: &HeaderMap, body: &Bytes) -> Result<Option<LeaseIdempotencyKey>, Refusal> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let Some(line) = lines.next() else { return Ok(None) };
    let text = line.to_str().unwrap_or_default().trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let is_name =
        (1..=MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if lines.next().is_some() || !is_name {
        return Err(malformed("`Idempotency-Key` is one word of 255 printable ASCII characters at most"));
    }
    let mut digest = DefaultHasher::new();
    body.hash(&mut digest);
    Ok(Some(LeaseIdempotencyKey { key: text.into(), fingerprint: digest.finish() }))
}

/// The refusal of a malformed request. The mistake is returned to the client, because it reveals no secret.
fn malformed(why: impl Into<Cow<'static, str>>) -> Refusal {
    let why = why.into();
    Refusal::new(RefusalReason::Malformed, why.clone()).with_advice(why)
}

fn lease_over() -> Refusal {
    Refusal::new(RefusalReason::StaleToken, "the lease is over")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str], body: &'static str) -> Result<Option<LeaseIdempotencyKey>, RefusalReason> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("idempotency-key", HeaderValue::from_str(line).expect("a value"));
        }
        parse_grant_name(&headers, &Bytes::from_static(body.as_bytes())).map_err(|refusal| refusal.reason)
    }

    /// A request has one name or none, and the name tells repeats of it from other requests.
    #[test]
    fn grant_name_is_one_word() {
        assert_eq!(parse(&[], "{}"), Ok(None));
        let name = parse(&["run-7"], "{}").expect("a name");
        assert_eq!(parse(&["\"run-7\""], "{}").expect("the same"), name);
        assert_ne!(parse(&["run-7"], "{ }").expect("another request"), name);
        assert_ne!(parse(&["run-8"], "{}").expect("another name"), name);
        let long = "x".repeat(256);
        for bad in [&["a", "a"][..], &[""], &["\"\""], &["a b"], &[&long]] {
            assert_eq!(parse(bad, "{}"), Err(RefusalReason::Malformed), "{bad:?}");
        }
    }
}
