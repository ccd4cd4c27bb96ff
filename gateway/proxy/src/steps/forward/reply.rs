//! The answer of an upstream on its way to the client, and the connection over which the rest of it comes.

use std::{sync::Arc, time::Duration};

use fencegate_http::{
    body::{Body, Reply, TrailerPolicy, hop_by_hop},
    connection_state::informational::InformationalSender,
};
use fencegate_http_client::upstream::{checkout::CheckedOutConnection, return_on_end};
use fencegate_policies::plan::ReservedHeaderNames;
use fencegate_protocol::headers::FENCING_REFUSAL;
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::Incoming,
    ext::on_informational,
    header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use tracing::warn;

use super::guard_report::GuardDispatchReport;
use crate::request_context::PlanHandle;

/// An answer of the upstream whose head has come.
pub(super) struct UpstreamResponse<'a> {
    pub(super) response: Response<Incoming>,
    pub(super) checkout: CheckedOutConnection,
    pub(super) plan: &'a PlanHandle,
}

impl UpstreamResponse<'_> {
    /// Makes the reply for the client. For a fenced request the step that reads the whole answer returns the
    /// connection to the pool; otherwise the end of the body does.
    pub(super) fn into_reply(self, fenced: bool) -> Reply {
        let Self { response, mut checkout, plan } = self;
        let (mut head, incoming) = response.into_parts();
        let incoming = (incoming, head.version);
        if head.headers.contains_key(TRANSFER_ENCODING) {
            // The library has removed the chunked coding. The client would trust a `Content-Length` that came with it
            // and that may be wrong (RFC 9112, 6.3).
            head.headers.remove(CONTENT_LENGTH);
        }
        merge_content_lengths(&mut head.headers);
        if let Some(longest) = keep_alive_timeout(&head.headers) {
            checkout.limit_idle_time(longest);
        }
        hop_by_hop::strip_hop_by_hop(&mut head.headers, &plan.fields);
        // The version belongs to the hop to the upstream. If an answer of HTTP/1.0 without a length broke off, it
        // would look complete.
        head.version = Version::HTTP_11;
        let trailers = TrailerPolicy::Clean(plan.clone());
        let idle = checkout.upstream().response_body_idle;
        Response::from_parts(head, return_on_end::upstream_body(incoming, trailers, idle, checkout, fenced))
    }

    /// Reads a guard's refusal to its end, so that the connection can be used again. Such an answer is short.
    pub(super) async fn drain_body(self) {
        if let Some(body) = self.into_reply(true).into_body().buffer_if_short().await {
            body.wait_request_writes_settled().await;
        }
    }
}

/// Passes interim responses of the upstream to the client (RFC 9110, 15.2), without the fields that only the gateway
/// may write. A 100 Continue is not passed on: the gateway has sent its own.
pub(super) fn forward_informational_responses(
    http: &mut Request<Body>,
    interims: InformationalSender,
    ours: Arc<ReservedHeaderNames>,
) {
    on_informational(http, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            return;
        }
        let mut headers = answer.headers().clone();
        hop_by_hop::strip_hop_by_hop(&mut headers, &ours);
        // An interim response has no body, so no length.
        headers.remove(CONTENT_LENGTH);
        interims.send(answer.status(), &headers);
    });
}

/// Leaves one `Content-Length` of several equal ones (RFC 9110, 8.6). If a body follows, the library has already
/// refused different ones. In answers without a body (HEAD, 304) different ones are removed: a client could not know
/// which is right.
fn merge_content_lengths(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let (Some(line), more) = (lines.next(), lines.next()) else { return };
    if more.is_none() && line.as_bytes().iter().all(u8::is_ascii_digit) {
        return;
    }
    let lines = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::to_str);
    let values =
        lines.map(|line| line.ok().map(|line| line.split(',').map(str::trim))).collect::<Option<Vec<_>>>();
    let mut lengths = values.into_iter().flatten().flatten().map(|length| length.parse::<u64>().ok());
    let length = lengths.next().flatten().filter(|length| lengths.all(|other| other == Some(*length)));
    match length {
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Reads from `Keep-Alive: timeout=N` how long the upstream keeps an idle connection.
fn keep_alive_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(KEEP_ALIVE)?.to_str().ok()?;
    let timeout = text.split(',').find_map(|parameter| parameter.trim().strip_prefix("timeout="))?;
    timeout.parse().ok().map(Duration::from_secs)
}

/// True for a transfer coding that the library does not remove: the client would get bytes in a coding that no field
/// names.
pub(super) fn has_content_coding(headers: &HeaderMap) -> bool {
    headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// True if an upstream that compares tokens reports that it has refused a stale token. For any other 412 the reason
/// is not known.
pub(super) fn is_stale_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    match headers.get(FENCING_REFUSAL) {
        Some(word) if status == StatusCode::PRECONDITION_FAILED && word == "stale" => true,
        Some(word) => {
            warn!(word = %word.as_bytes().escape_ascii(), "an upstream refused a request with an unknown reason");
            false
        }
        None => false,
    }
}

/// True if a filter or guard reports that it has refused a dispatch after its deadline.
pub(super) fn is_expired_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    let word = headers.get(FENCING_REFUSAL);
    status == StatusCode::PRECONDITION_FAILED && word.is_some_and(|word| word == "expired")
}

/// Counts a failure of the endpoint if its answer says that it, or its service, is out of order. A guard's refusal
/// says nothing of that kind.
pub(super) fn record_endpoint_result(checkout: &CheckedOutConnection, response: &Response<Incoming>) {
    let is_unavailable = matches!(response.status().as_u16(), 502..=504);
    if is_unavailable && !GuardDispatchReport::parse(response.headers()).has_outcome_or_refusal() {
        checkout.record_failure()
    } else {
        checkout.record_success()
    }
}
