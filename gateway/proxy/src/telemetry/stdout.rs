//! The access log: one line of JSON per request on stdout, written by a thread of its own. Requests never wait for
//! that thread: lines that do not fit into its buffer are counted and lost.

use std::{fmt, io::Write, net::IpAddr, sync::Arc, time::Duration};

use fencegate_metrics::AllMetricFamilies;
use fencegate_process::log_writer::{LogFlushGuard, NonBlocking, stdout_queue_writer};
use fencegate_refusal::{DispatchOutcome, RefusalReason};
use humantime::format_rfc3339_millis;
use serde::Serialize;

use super::record::RequestTelemetryRecord;

/// Takes lines from any thread, and is cheap to clone.
#[derive(Clone)]
pub(super) struct AccessLog {
    lines: NonBlocking,
    /// When the last clone is dropped, the queued lines are written.
    _writes: Arc<LogFlushGuard>,
}

impl AccessLog {
    pub(super) fn start(metrics: &AllMetricFamilies) -> Self {
        let (lines, writes) = stdout_queue_writer();
        metrics.set_access_line_counter(lines.error_counter());
        Self { lines, _writes: Arc::new(writes) }
    }

    pub(super) fn write_access_log(&self, exchange: &RequestTelemetryRecord) {
        let mut line = serde_json::to_vec(&AccessLogLine::new(exchange)).expect("plain fields serialise");
        line.push(b'\n');
        // The write never fails: a line that does not fit into the buffer is counted as lost.
        self.lines.clone().write_all(&line).ok();
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

/// One line of the access log. An absent field is unknown, or has no meaning for this request.
#[derive(Serialize)]
struct AccessLogLine<'a> {
    ts: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    /// The name in the certificate of the peer, which may be a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The token of the dispatch in which a service sent this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    called_from: Option<String>,
    /// The gateway that has answered in place of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded_to: Option<String>,
    /// The gateway in whose place this one answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded_from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_ms: Option<f64>,
    /// 499 if the client disconnected before there was an answer.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_ms: Option<f64>,
    total_ms: f64,
    bytes: u64,
    complete: bool,
}

impl<'a> AccessLogLine<'a> {
    fn new(exchange: &'a RequestTelemetryRecord) -> Self {
        let context = &exchange.context;
        let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let trace = context.trace.get().map(|trace| &trace.context);
        let source = context.source.get();
        let lock = context.lock.get();
        let certificate = exchange.peer.certificate();
        Self {
            ts: format_rfc3339_millis(exchange.at).to_string(),
            request_id: context.trace.get().and_then(|trace| trace.request_id.to_str().ok()),
            trace_id: trace.map(|trace| trace.trace_id()),
            span_id: trace.map(|trace| trace.span_id()),
            client: source.map(|source| source.client),
            client_identity: exchange.client_identity(),
            client_certificate: certificate.map(|identity| identity.fingerprint.as_str()),
            route: exchange.route.as_deref(),
            method: exchange.method.as_str(),
            path: &exchange.path,
            key: exchange.keys(),
            token: context.token().map(|token| token.to_string()),
            called_from: lock.called_from.map(|token| token.to_string()),
            forwarded_to: context.peer.borrow().as_ref().map(|peer| peer.gateway.to_string()),
            forwarded_from: source
                .and_then(|source| source.forwarded.as_ref())
                .map(|forwarded| &*forwarded.from),
            wait_ms: lock.waited.map(millis),
            upstream_ms: context.last_sending().and_then(|(_, _, answered)| answered).map(millis),
            status: exchange.response.as_ref().map_or(499, |answered| answered.status.as_u16()),
            outcome: exchange.outcome().map(DispatchOutcome::as_str),
            reason: exchange.reason().map(RefusalReason::word),
            head_ms: exchange.response.as_ref().map(|answered| millis(answered.after)),
            total_ms: millis(exchange.began.elapsed()),
            bytes: exchange.sent,
            complete: exchange.complete,
        }
    }
}
