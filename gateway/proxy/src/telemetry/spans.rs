//! Describes a request as spans of OpenTelemetry: the request itself, the wait for its lock, and the exchange with
//! the upstream. Names and attributes follow the semantic conventions for HTTP; the attributes of this project
//! begin with `fencegate.`.

use std::time::{Duration, Instant, SystemTime};

use fencegate_protocol::trace::TraceContext;
use fencegate_refusal::{DispatchOutcome, RefusalReason};
use hyper::{Method, StatusCode};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode as Verdict},
};

use super::record::RequestTelemetryRecord;

/// The spans of one request; empty if its trace is not recorded.
pub(super) fn spans_for(exchange: &RequestTelemetryRecord) -> Vec<Span> {
    let trace = exchange.context.trace.get().map(|trace| trace.context);
    let Some(trace) = trace.filter(TraceContext::is_recorded) else { return Vec::new() };
    let mut spans = vec![request_span(exchange, &trace)];
    spans.extend(lock_span(exchange, &trace));
    spans.extend(upstream_span(exchange, &trace));
    spans
}

fn request_span(exchange: &RequestTelemetryRecord, trace: &TraceContext) -> Span {
    let route = exchange.route.as_deref();
    let (method, verb) = method_attribute(&exchange.method);
    let name = route.map_or_else(|| verb.to_owned(), |route| format!("{verb} {route}"));
    let status = exchange.response.as_ref().map(|answered| answered.status);
    let failed = match status {
        None => Some("client_gone".to_owned()),
        Some(status) => status.is_server_error().then(|| error_type(exchange.reason(), status)),
    };
    let token = exchange.context.token().map(|token| token.to_string());
    let attributes = [
        string_attribute("http.request.method", Some(method)),
        int_attribute("http.response.status_code", status.map(|status| i64::from(status.as_u16()))),
        string_attribute("fencegate.route", route),
        string_attribute("fencegate.outcome", exchange.outcome().map(DispatchOutcome::as_str)),
        string_attribute("fencegate.reason", exchange.reason().map(RefusalReason::word)),
        string_attribute("fencegate.token", token.as_deref()),
        string_attribute("fencegate.key", exchange.keys().as_deref()),
        string_attribute("error.type", failed.as_deref()),
    ];
    Span {
        span_id: span_id_bytes(trace.span),
        parent_span_id: trace.parent.map(span_id_bytes).unwrap_or_default(),
        kind: SpanKind::Server.into(),
        status: failed.map(|_| error_status()),
        ..child_span(exchange, trace, name, attributes, exchange.began, exchange.began.elapsed())
    }
}

/// The span of the wait for the lock; `None` if the lock was held here already.
fn lock_span(exchange: &RequestTelemetryRecord, trace: &TraceContext) -> Option<Span> {
    let lock = exchange.context.lock.get();
    let began = lock.wait_began?.into_std();
    // Without a grant the wait ended with the refusal, or when the client disconnected.
    let waited = lock.waited.unwrap_or_else(|| time_to_response(exchange, began));
    let attributes = [string_attribute("fencegate.key", exchange.keys().as_deref())];
    Some(child_span(exchange, trace, "lock".to_owned(), attributes, began, waited))
}

/// The span of the last sending; `None` if nothing was sent.
fn upstream_span(exchange: &RequestTelemetryRecord, trace: &TraceContext) -> Option<Span> {
    let (began, upstream, head) = exchange.context.last_sending()?;
    let began = began.into_std();
    // If the gateway refused the request itself, the status is not one of the upstream.
    let given = exchange.response.as_ref().filter(|answered| answered.reason.is_none());
    let status = given.map(|answered| answered.status);
    let failed = match (&exchange.response, status) {
        (_, Some(status)) => status.is_server_error().then(|| error_type(None, status)),
        (Some(refused), None) => {
            let told = head.is_some() && refused.outcome != DispatchOutcome::Unknown;
            refused.reason.filter(|_| !told).map(|reason| reason.word().to_owned())
        }
        (None, None) => Some("client_gone".to_owned()),
    };
    let (method, verb) = method_attribute(&exchange.method);
    let attributes = [
        string_attribute("http.request.method", Some(method)),
        int_attribute("http.response.status_code", status.map(|status| i64::from(status.as_u16()))),
        string_attribute("fencegate.upstream", Some(&*upstream)),
        string_attribute("error.type", failed.as_deref()),
    ];
    let took = head.unwrap_or_else(|| time_to_response(exchange, began));
    Some(Span {
        // The upstream was sent this id as the parent of its own spans.
        span_id: span_id_bytes(trace.below),
        kind: SpanKind::Client.into(),
        status: failed.map(|_| error_status()),
        ..child_span(exchange, trace, verb.to_owned(), attributes, began, took)
    })
}

/// Makes a span below that of the request, with an id of its own.
fn child_span(
    exchange: &RequestTelemetryRecord,
    trace: &TraceContext,
    name: String,
    attributes: impl IntoIterator<Item = Option<KeyValue>>,
    began: Instant,
    took: Duration,
) -> Span {
    let start = exchange.at + began.saturating_duration_since(exchange.began);
    Span {
        trace_id: trace.id.to_be_bytes().to_vec(),
        span_id: span_id_bytes(fastrand::u64(1..)),
        parent_span_id: span_id_bytes(trace.span),
        flags: u32::from(trace.flags),
        name,
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(start),
        end_time_unix_nano: nanos(start + took),
        attributes: attributes.into_iter().flatten().collect(),
        ..Span::default()
    }
}

/// The time from `from` to the answer, or to now if there was none.
fn time_to_response(exchange: &RequestTelemetryRecord, from: Instant) -> Duration {
    let end =
        exchange.response.as_ref().map_or_else(Instant::now, |answered| exchange.began + answered.after);
    end.saturating_duration_since(from)
}

/// The method as an attribute, and as the beginning of a span's name. An unknown method gets a fixed name, so that
/// clients cannot make up new names of spans.
fn method_attribute(method: &Method) -> (&'static str, &'static str) {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN
        .into_iter()
        .find(|known| *known == method.as_str())
        .map_or(("_OTHER", "HTTP"), |known| (known, known))
}

fn error_type(reason: Option<RefusalReason>, status: StatusCode) -> String {
    reason.map_or_else(|| status.as_u16().to_string(), |reason| reason.word().to_owned())
}

fn error_status() -> Status {
    Status { code: Verdict::Error.into(), message: String::new() }
}

fn span_id_bytes(span: u64) -> Vec<u8> {
    span.to_be_bytes().to_vec()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn string_attribute(key: &str, value: Option<&str>) -> Option<KeyValue> {
    attribute(key, Value::StringValue(value?.to_owned()))
}

fn int_attribute(key: &str, value: Option<i64>) -> Option<KeyValue> {
    attribute(key, Value::IntValue(value?))
}

fn attribute(key: &str, value: Value) -> Option<KeyValue> {
    Some(KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    })
}
