//! Describes a request as spans of OpenTelemetry: the request itself, the wait for its lock, and the exchange with
//! the upstream. Names and attributes follow the semantic conventions for HTTP; our own begin with `fencegate.`.

use std::time::{Duration, Instant, SystemTime};

use hyper::{Method, StatusCode};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode as Verdict},
};

use super::exchange::RequestRecord;
use crate::{
    refusal::{Outcome, Reason},
    trace::Trace,
};

/// The spans of one request; empty if its trace is not recorded.
pub(super) fn spans_of(exchange: &RequestRecord) -> Vec<Span> {
    let Some(trace) = exchange.notes.trace.get().filter(Trace::is_recorded) else { return Vec::new() };
    let mut spans = vec![request(exchange, &trace)];
    spans.extend(lock(exchange, &trace));
    spans.extend(upstream(exchange, &trace));
    spans
}

fn request(exchange: &RequestRecord, trace: &Trace) -> Span {
    let route = exchange.route.as_deref();
    let (method, verb) = method(&exchange.method);
    let name = route.map_or_else(|| verb.to_owned(), |route| format!("{verb} {route}"));
    let status = exchange.answered.as_ref().map(|answered| answered.status);
    let failed = match status {
        None => Some("client_gone".to_owned()),
        Some(status) => status.is_server_error().then(|| error_type(exchange.reason(), status)),
    };
    let token = exchange.notes.token.get().map(|token| token.to_string());
    let attributes = [
        text("http.request.method", Some(method)),
        number("http.response.status_code", status.map(|status| i64::from(status.as_u16()))),
        text("fencegate.route", route),
        text("fencegate.outcome", exchange.outcome().map(Outcome::word)),
        text("fencegate.reason", exchange.reason().map(Reason::word)),
        text("fencegate.token", token.as_deref()),
        text("fencegate.key", exchange.keys().as_deref()),
        text("error.type", failed.as_deref()),
    ];
    Span {
        span_id: id(trace.span),
        parent_span_id: trace.parent.map(id).unwrap_or_default(),
        kind: SpanKind::Server.into(),
        status: failed.map(|_| failure()),
        ..span(exchange, trace, name, attributes, exchange.began, exchange.began.elapsed())
    }
}

/// `None` if the lock was here already.
fn lock(exchange: &RequestRecord, trace: &Trace) -> Option<Span> {
    let began = exchange.notes.asked.get()?.into_std();
    // Without a grant the wait ended with the answer that refuses, or when the client left.
    let waited = exchange.notes.waited.get().unwrap_or_else(|| answered(exchange, began));
    let attributes = [text("fencegate.key", exchange.keys().as_deref())];
    Some(span(exchange, trace, "lock".to_owned(), attributes, began, waited))
}

/// The last sending. `None` where nothing was sent.
fn upstream(exchange: &RequestRecord, trace: &Trace) -> Option<Span> {
    let sent = exchange.notes.sent.borrow();
    let (began, upstream) = sent.as_ref()?;
    let began = began.into_std();
    let head = exchange.notes.upstream.get();
    // The status of our own refusal is not a status of the upstream.
    let given = exchange.answered.as_ref().filter(|answered| answered.reason.is_none());
    let status = given.map(|answered| answered.status);
    let failed = match (&exchange.answered, status) {
        (_, Some(status)) => status.is_server_error().then(|| error_type(None, status)),
        (Some(refused), None) => {
            let told = head.is_some() && refused.outcome != Outcome::Unknown;
            refused.reason.filter(|_| !told).map(|reason| reason.word().to_owned())
        }
        (None, None) => Some("client_gone".to_owned()),
    };
    let (method, verb) = method(&exchange.method);
    let attributes = [
        text("http.request.method", Some(method)),
        number("http.response.status_code", status.map(|status| i64::from(status.as_u16()))),
        text("fencegate.upstream", Some(upstream)),
        text("error.type", failed.as_deref()),
    ];
    let took = head.unwrap_or_else(|| answered(exchange, began));
    Some(Span {
        // The upstream got this span as its parent.
        span_id: id(trace.below),
        kind: SpanKind::Client.into(),
        status: failed.map(|_| failure()),
        ..span(exchange, trace, verb.to_owned(), attributes, began, took)
    })
}

/// A span below the request, with an id of its own.
fn span(
    exchange: &RequestRecord,
    trace: &Trace,
    name: String,
    attributes: impl IntoIterator<Item = Option<KeyValue>>,
    began: Instant,
    took: Duration,
) -> Span {
    let start = exchange.at + began.saturating_duration_since(exchange.began);
    Span {
        trace_id: trace.id.to_be_bytes().to_vec(),
        span_id: id(fastrand::u64(1..)),
        parent_span_id: id(trace.span),
        flags: u32::from(trace.flags),
        name,
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(start),
        end_time_unix_nano: nanos(start + took),
        attributes: attributes.into_iter().flatten().collect(),
        ..Span::default()
    }
}

/// The time from then to the answer; to now if there was none.
fn answered(exchange: &RequestRecord, from: Instant) -> Duration {
    let end =
        exchange.answered.as_ref().map_or_else(Instant::now, |answered| exchange.began + answered.after);
    end.saturating_duration_since(from)
}

/// The method as an attribute, and as the beginning of a span's name. Methods that clients invent must not make
/// names.
fn method(method: &Method) -> (&'static str, &'static str) {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN
        .into_iter()
        .find(|known| *known == method.as_str())
        .map_or(("_OTHER", "HTTP"), |known| (known, known))
}

fn error_type(reason: Option<Reason>, status: StatusCode) -> String {
    reason.map_or_else(|| status.as_u16().to_string(), |reason| reason.word().to_owned())
}

fn failure() -> Status {
    Status { code: Verdict::Error.into(), message: String::new() }
}

fn id(span: u64) -> Vec<u8> {
    span.to_be_bytes().to_vec()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn text(key: &str, value: Option<&str>) -> Option<KeyValue> {
    attribute(key, Value::StringValue(value?.to_owned()))
}

fn number(key: &str, value: Option<i64>) -> Option<KeyValue> {
    attribute(key, Value::IntValue(value?))
}

fn attribute(key: &str, value: Value) -> Option<KeyValue> {
    Some(KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    })
}
