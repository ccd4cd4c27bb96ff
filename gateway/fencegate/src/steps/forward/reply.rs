//! The answer of an upstream on its way back, and the connection that the rest of it comes from.

use std::{sync::Arc, time::Duration};

use fencegate_http::{
    body::{Body, Reply, Trailers, fields},
    course::interim::Saying,
    upstream::{lend::Lend, lent},
};
use fencegate_policies::plan::ReservedFields;
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::Incoming,
    ext::on_informational,
    header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING},
};
use tracing::warn;

use super::verdict::Account;
use crate::{headers::FENCING_REFUSAL, notes::Planned};

/// An answer of the upstream whose head is here.
pub(super) struct AnswerHead<'a> {
    pub(super) response: Response<Incoming>,
    pub(super) lend: Lend,
    pub(super) plan: &'a Planned,
}

impl AnswerHead<'_> {
    /// `fenced`: whoever reads it to its end gives the connection back.
    pub(super) fn reply(self, fenced: bool) -> Reply {
        let Self { response, mut lend, plan } = self;
        let (mut head, incoming) = response.into_parts();
        let incoming = (incoming, head.version);
        if head.headers.contains_key(TRANSFER_ENCODING) {
            // The library took the coding; a length beside it would be believed by the client (RFC 9112, 6.3).
            head.headers.remove(CONTENT_LENGTH);
        }
        one_length(&mut head.headers);
        if let Some(longest) = keep_alive(&head.headers) {
            lend.keep_at_most(longest);
        }
        fields::clean(&mut head.headers, &plan.fields);
        // Of this hop: an answer of unknown length to HTTP/1.0 would look complete when it breaks.
        head.version = Version::HTTP_11;
        let (trailers, idle) = (Trailers::Clean(plan.clone()), lend.upstream().response_body_idle);
        Response::from_parts(head, lent::body(incoming, trailers, idle, lend, fenced))
    }

    /// A refusal of a guard is read to its end, so that the connection can be used again. It is short.
    pub(super) async fn spent(self) {
        if let Some(body) = self.reply(true).into_body().spent().await {
            body.settled().await;
        }
    }
}

/// What an upstream says before its answer goes to the client (RFC 9110, 15.2), without what only we may say. That it goes
/// on is not said: whoever asked for that was told so here.
pub(super) fn pass_interims(http: &mut Request<Body>, saying: Saying, ours: Arc<ReservedFields>) {
    on_informational(http, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            return;
        }
        let mut headers = answer.headers().clone();
        fields::clean(&mut headers, &ours);
        // It has no body that any of these could tell of.
        headers.remove(CONTENT_LENGTH);
        saying.say(answer.status(), &headers);
    });
}

/// One length, however often an upstream says it (RFC 9110, 8.6). Where a body follows, the library has refused unlike
/// ones; elsewhere (HEAD, 304) nobody counts by them, and a client would not know which to believe.
fn one_length(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let (Some(line), more) = (lines.next(), lines.next()) else { return };
    if more.is_none() && line.as_bytes().iter().all(u8::is_ascii_digit) {
        return;
    }
    let lines = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::to_str);
    let said =
        lines.map(|line| line.ok().map(|line| line.split(',').map(str::trim))).collect::<Option<Vec<_>>>();
    let mut lengths = said.into_iter().flatten().flatten().map(|length| length.parse::<u64>().ok());
    let length = lengths.next().flatten().filter(|length| lengths.all(|other| other == Some(*length)));
    match length {
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

/// `Keep-Alive: timeout=N`: how long the upstream keeps an idle connection.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("keep-alive")?.to_str().ok()?;
    let timeout = text.split(',').find_map(|parameter| parameter.trim().strip_prefix("timeout="))?;
    timeout.parse().ok().map(Duration::from_secs)
}

/// The library takes `chunked` off, and nothing else: the client would get bytes in a coding that no field tells of.
pub(super) fn is_coded(headers: &HeaderMap) -> bool {
    headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// A comparing upstream says that it has refused; of any other 412 it is not known why.
pub(super) fn refused_stale(status: StatusCode, headers: &HeaderMap) -> bool {
    match headers.get(FENCING_REFUSAL) {
        Some(word) if status == StatusCode::PRECONDITION_FAILED && word == "stale" => true,
        Some(word) => {
            warn!(word = %word.as_bytes().escape_ascii(), "unknown refusal of an upstream");
            false
        }
        None => false,
    }
}

/// An endpoint that says that it, or what it speaks for, is out of order. A guard's refusal is no such word.
pub(super) fn judge_endpoint(lend: &Lend, response: &Response<Incoming>) {
    let sick = matches!(response.status().as_u16(), 502..=504);
    if sick && !Account::read(response.headers()).is_of_a_guard() { lend.failed() } else { lend.worked() }
}
