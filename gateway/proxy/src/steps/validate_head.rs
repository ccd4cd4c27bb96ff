//! Accepts only a head that no two servers can read differently, and refuses every other request. The path is checked
//! later, in [`super::route`].

use std::{cell::RefCell, rc::Rc, sync::Arc};

use fencegate_config::active_config::PipelineEntryGuard;
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{host::CanonicalHost, path::CanonicalPath, plan::CommonServingPlan};
use fencegate_protocol::headers::SERVED_METHODS;
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri, Version,
    header::{ALLOW, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING},
};

use crate::{
    frontend::RawRequest,
    handler::ShortCircuit,
    request_context::{RequestArrival, RequestContext},
};

/// A request whose head no two servers read differently, except perhaps its path, which [`super::route`] checks.
pub struct ValidatedRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub arrival: RequestArrival,
    /// Counts the request as one that has looked up the pipeline, until the request is counted under its plan.
    pub entry: Option<PipelineEntryGuard>,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
}

/// The settings and state for the validation of heads.
#[derive(Clone)]
pub(crate) struct HeadValidator {
    plan: Arc<CommonServingPlan>,
    hosts: Rc<HostCache>,
}

/// The host as the last request spelled it, and its canonical form. Most requests of a worker have the same spelling,
/// and a comparison is faster than parsing.
#[derive(Default)]
struct HostCache(RefCell<Option<(Box<str>, CanonicalHost)>>);

impl HeadValidator {
    pub(crate) fn new(plan: &Arc<CommonServingPlan>) -> Self {
        Self { plan: plan.clone(), hosts: Rc::default() }
    }
}

impl HostCache {
    fn parse(&self, spelled: &str) -> Result<CanonicalHost, Refusal> {
        if let Some((_, host)) = self.0.borrow().as_ref().filter(|(last, _)| **last == *spelled) {
            return Ok(host.clone());
        }
        let host = CanonicalHost::parse(spelled);
        let host = host.map_err(|bad| Refusal::new(RefusalReason::Malformed, bad.to_string()))?;
        self.0.replace(Some((spelled.into(), host.clone())));
        Ok(host)
    }
}

pub(crate) fn validate_head(
    validator: &HeadValidator,
    request: RawRequest,
) -> Result<ValidatedRequest, ShortCircuit> {
    let RawRequest { mut http, context, arrival, entry } = request;
    let plan = &validator.plan;
    if http.version() == Version::HTTP_2 {
        // Cookies are joined before fields are counted: a client that splits its cookie into pieces still has one
        // field.
        join_cookies(http.headers_mut())?;
    }
    if http.headers().len() > plan.listener.limits.max_fields {
        let fields = format!("{} fields", http.headers().len());
        return Err(Refusal::new(RefusalReason::HeaderTooLarge, fields).into());
    }
    check_method(http.method())?;
    check_framing(&http)?;
    check_expectation(http.headers())?;
    check_header_size(&http, plan.listener.limits.max_header)?;
    let host = parse_host(&validator.hosts, &http)?;
    if !plan.listener.hosts.contains(&host) {
        return Err(Refusal::new(RefusalReason::Misdirected, format!("the host {}", host.as_str())).into());
    }
    if http.uri().path() == "*" {
        return Err(answer_asterisk(http.method()).map_or_else(ShortCircuit::from, ShortCircuit::with_reply));
    }
    if !http.uri().path().starts_with('/') {
        return Err(malformed_refusal("a target that is not a path").into());
    }
    let path = CanonicalPath::parse(http.uri().path());
    Ok(ValidatedRequest { http, context, arrival, entry, host, path })
}

fn malformed_refusal(detail: &'static str) -> Refusal {
    Refusal::new(RefusalReason::Malformed, detail)
}

/// Refuses CONNECT, which requests a tunnel, and TRACE, which would send our own fields back to the client.
fn check_method(method: &Method) -> Result<(), Refusal> {
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(Refusal::new(RefusalReason::Method, "CONNECT and TRACE are not served"));
    }
    Ok(())
}

/// Answers `OPTIONS *`, which addresses the server itself (RFC 9110, 9.3.7), so it is not forwarded.
fn answer_asterisk(method: &Method) -> Result<Reply, Refusal> {
    if *method != Method::OPTIONS {
        return Err(malformed_refusal("`*` is a target for OPTIONS only"));
    }
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(SERVED_METHODS));
    Ok(reply)
}

/// Refuses every transfer coding but a single `chunked`. The HTTP library decodes a final `chunked` and passes other
/// codings on; another server may read them differently.
fn check_framing(http: &Request<Body>) -> Result<(), Refusal> {
    let mut codings = http.headers().get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(Refusal::new(RefusalReason::TransferEncoding, "Transfer-Encoding other than `chunked`"));
    }
    if http.headers().contains_key(CONTENT_LENGTH) || http.version() == Version::HTTP_10 {
        return Err(malformed_refusal("Transfer-Encoding together with Content-Length, or in HTTP/1.0"));
    }
    Ok(())
}

fn check_expectation(headers: &HeaderMap) -> Result<(), Refusal> {
    let known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get_all(EXPECT).iter().all(known) {
        return Ok(());
    }
    Err(Refusal::new(RefusalReason::Expectation, "Expect other than `100-continue`"))
}

/// Refuses a head that is too large. The library itself refuses only one that is far larger: in HTTP/1.1, one that
/// does not fit into its buffer.
fn check_header_size(http: &Request<Body>, most: usize) -> Result<(), Refusal> {
    let of_a_field = if http.version() == Version::HTTP_2 { HPACK_ENTRY } else { ": \r\n".len() };
    let fields = http.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + of_a_field);
    let target = http.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > most {
        return Err(Refusal::new(RefusalReason::TargetTooLarge, format!("a target of {target} bytes")));
    }
    let size = target + fields.sum::<usize>();
    if size > most {
        return Err(Refusal::new(RefusalReason::HeaderTooLarge, format!("a head of {size} bytes")));
    }
    Ok(())
}

/// The bytes that each HTTP/2 field counts beside its name and value (RFC 9113, 6.5.2).
const HPACK_ENTRY: usize = 32;

/// Joins the pieces of a cookie. HTTP/2 clients may send each piece as a field (RFC 9113, 8.2.3); HTTP/1.1 has one
/// field.
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1 {
        let joined = HeaderValue::from_bytes(&pieces.join(&b"; "[..]));
        let joined = joined.map_err(|_| malformed_refusal("a cookie that no field can hold"))?;
        headers.insert(COOKIE, joined);
    }
    Ok(())
}

/// Reads the host, which must be unique: from the `Host` field, or from an absolute target that a `Host` field does
/// not contradict. In HTTP/1.1 the field has to be there, whatever the target is (RFC 9112, 3.2).
fn parse_host(hosts: &HostCache, http: &Request<Body>) -> Result<CanonicalHost, Refusal> {
    let target = http.uri();
    let version = http.version();
    let mut fields = http.headers().get_all(HOST).iter();
    let field = fields.next();
    let more = fields.next();
    if more.is_some() {
        return Err(malformed_refusal("more than one Host field"));
    }
    let field = field
        .map(|value| value.to_str().map_err(|_| malformed_refusal("a Host field that is not ASCII")))
        .transpose()?;
    let named = field.map(|field| hosts.parse(field)).transpose()?;
    if !matches!(target.scheme_str(), None | Some("http" | "https")) {
        return Err(malformed_refusal("a target with another scheme than http"));
    }
    match (target.authority().map(|authority| hosts.parse(authority.as_str())).transpose()?, named) {
        (None, Some(named)) => Ok(named),
        (Some(_), None) if version == Version::HTTP_11 => Err(malformed_refusal("no Host field")),
        (Some(host), None) => Ok(host),
        (Some(host), Some(named)) if host_and_port(&host, target) == host_and_port(&named, target) => {
            Ok(named)
        }
        (Some(_), Some(_)) => Err(malformed_refusal("the target and the Host field name different hosts")),
        (None, None) => Err(malformed_refusal("no Host field")),
    }
}

/// Splits a host into name and port. Without a port it has the default of the scheme (RFC 9110, 4.2.3).
fn host_and_port<'a>(host: &'a CanonicalHost, target: &Uri) -> (&'a str, u16) {
    let usual = if target.scheme_str() == Some("https") { 443 } else { 80 };
    (host.name(), host.port().unwrap_or(usual))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cache of the last host never changes the result of parsing another one.
    #[test]
    fn cached_host_keeps_its_spelling() {
        let hosts = HostCache::default();
        for _ in 0..2 {
            for (spelled, read) in
                [("a.example", "a.example"), ("A.Example.", "a.example"), ("b.example:80", "b.example:80")]
            {
                for _ in 0..2 {
                    assert_eq!(hosts.parse(spelled).expect("a host").as_str(), read, "{spelled}");
                }
                assert_eq!(hosts.parse("a b").expect_err("no host").reason, RefusalReason::Malformed);
            }
        }
    }
}
