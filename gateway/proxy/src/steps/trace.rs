//! Names a request for the reports of this process and of every service on its path: by a trace that is passed on
//! or begun, and by an id that the client can quote.

use std::rc::Rc;

use fencegate_protocol::{
    headers::{TRACEPARENT, X_REQUEST_ID},
    trace::{TraceContext, TraceSamplingRate},
};
use hyper::header::HeaderValue;

use super::hop::IdentifiedRequest;
use crate::{handler::ShortCircuit, request_context::RequestTraceIds};

pub(crate) fn start_trace(
    sampling: &TraceSamplingRate,
    mut request: IdentifiedRequest,
) -> Result<TracedRequest, ShortCircuit> {
    let headers = request.http.headers_mut();
    let trace = TraceContext::from_headers(headers, *sampling);
    let (parent, name) = trace.traceparent_and_request_id();
    headers.insert(TRACEPARENT, parent);
    let named = match headers.get(X_REQUEST_ID).filter(|value| is_safe_request_id(value.as_bytes())) {
        // The id is copied, because it lives longer than the buffer of the head, which a slice of it would keep in
        // memory.
        Some(named) => HeaderValue::from_bytes(named.as_bytes()).unwrap_or(name),
        None => name,
    };
    headers.insert(X_REQUEST_ID, named.clone());
    let trace = Rc::new(RequestTraceIds { context: trace, request_id: named });
    request.context.trace.get_or_init(|| trace.clone());
    Ok(TracedRequest { request, trace })
}

/// A request that has a trace and an id.
pub struct TracedRequest {
    pub request: IdentifiedRequest,
    pub trace: Rc<RequestTraceIds>,
}

/// True if the id is short, and safe in a log and in a shell.
fn is_safe_request_id(text: &[u8]) -> bool {
    (1..=128).contains(&text.len())
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+/=".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request id that could forge a line of the log is rejected.
    #[test]
    fn log_forging_request_name_is_rejected() {
        assert!(is_safe_request_id(b"req-42/a.b:c") && is_safe_request_id(&[b'a'; 128]));
        for bad in [&b""[..], b"a b", b"a\"b", b"a\tb", b"\xff", &[b'a'; 129]] {
            assert!(!is_safe_request_id(bad), "{bad:?}");
        }
    }
}
