//! Connects all reports about a request, here and at every service on its path: a trace that is passed on or begun,
//! and an id that the client can quote.

use fencegate_protocol::{
    headers::{TRACEPARENT, X_REQUEST_ID},
    trace::{Sampling, TraceContext},
};
use hyper::header::HeaderValue;

use super::strip_headers::SanitizedRequest;
use crate::handler::ShortCircuit;

pub fn start_trace(
    recording: &Sampling,
    mut request: SanitizedRequest,
) -> Result<SanitizedRequest, ShortCircuit> {
    let headers = request.request.http.headers_mut();
    let trace = TraceContext::from_headers(headers, *recording);
    let (parent, name) = trace.header_values();
    headers.insert(TRACEPARENT, parent);
    let named = match headers.get(X_REQUEST_ID).filter(|value| is_safe_request_id(value.as_bytes())) {
        // Copied, because the id is kept for longer than the buffer that it stands in.
        Some(named) => HeaderValue::from_bytes(named.as_bytes()).unwrap_or(name),
        None => name,
    };
    headers.insert(X_REQUEST_ID, named.clone());
    let context = &request.request.notes;
    context.trace.set(Some(trace));
    context.request_id.get_or_init(|| named);
    Ok(request)
}

/// Short, and safe in a log and in a shell.
fn is_safe_request_id(text: &[u8]) -> bool {
    (1..=128).contains(&text.len())
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+/=".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request name that could forge a line of the log is rejected.
    #[test]
    fn log_forging_request_name_is_rejected() {
        assert!(is_safe_request_id(b"req-42/a.b:c") && is_safe_request_id(&[b'a'; 128]));
        for bad in [&b""[..], b"a b", b"a\"b", b"a\tb", b"\xff", &[b'a'; 129]] {
            assert!(!is_safe_request_id(bad), "{bad:?}");
        }
    }
}
