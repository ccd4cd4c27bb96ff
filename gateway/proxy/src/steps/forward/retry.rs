//! Decides which requests may be sent a second time although the first copy may have arrived: requests without a lock
//! whose method is defined to change nothing (RFC 9110, 9.2.1 and 9.2.2).

use fencegate_http::body::Body;
use fencegate_http_client::upstream::client_connection::AcceptsTrailers;
use hyper::{
    Method, Request, Version,
    body::Body as _,
    header::{HeaderName, HeaderValue},
};

use crate::steps::route::find_override;

/// The head of a request that may be sent again, as one text. Most of these copies are never used, and a copy of the
/// header map would be costly for each request.
pub(super) struct RetryRequestHead {
    method: Method,
    takes_trailers: bool,
    /// The target and all fields, each followed by a line feed, which none of them can contain.
    lines: Vec<u8>,
}

/// Copies the request, for the case that a pooled connection is closed under it without a byte of an answer. Services
/// close idle connections at any time, so every client with a pool meets this. Requests with other methods or with a
/// body are not copied; their clients have to repeat them.
///
/// `known` tells whether a field overrides the method or the path; `None` if that was not checked. A GET with such a
/// field changes something, if the service obeys the field.
pub(super) fn retry_copy(http: &Request<Body>, known: Option<bool>) -> Option<RetryRequestHead> {
    let safe = matches!(*http.method(), Method::GET | Method::HEAD);
    let overridden = known.unwrap_or_else(|| find_override(http.headers()).is_some());
    if !safe || overridden || !http.body().is_end_stream() {
        return None;
    }
    let mut lines = Vec::with_capacity(TYPICAL_HEAD_LEN);
    lines.extend_from_slice(http.uri().path_and_query()?.as_str().as_bytes());
    lines.push(b'\n');
    for (name, value) in http.headers() {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.push(b':');
        lines.extend_from_slice(value.as_bytes());
        lines.push(b'\n');
    }
    let takes_trailers = http.extensions().get::<AcceptsTrailers>().is_some();
    Some(RetryRequestHead { method: http.method().clone(), takes_trailers, lines })
}

/// The usual size of a head in bytes.
const TYPICAL_HEAD_LEN: usize = 1000;

impl RetryRequestHead {
    /// Makes the request again. `None` would be a bug: the target and the fields were valid when they were copied.
    pub(super) fn into_request(self) -> Option<Box<Request<Body>>> {
        let mut lines = self.lines.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]);
        let mut request = Request::new(Body::empty());
        *request.method_mut() = self.method;
        *request.uri_mut() = lines.next()?.try_into().ok()?;
        *request.version_mut() = Version::HTTP_11;
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            request.headers_mut().append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
        }
        if self.takes_trailers {
            request.extensions_mut().insert(AcceptsTrailers);
        }
        Some(Box::new(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only GET and HEAD without a body may be sent a second time.
    #[test]
    fn only_bodyless_reads_are_retried() {
        for (method, body, may) in [
            ("GET", "", true),
            ("HEAD", "", true),
            ("GET", "x", false),
            ("OPTIONS", "", false),
            ("POST", "", false),
            ("PUT", "", false),
            ("DELETE", "", false),
            ("get", "", false),
        ] {
            let request = Request::builder().method(method).uri("/a?b").extension(AcceptsTrailers);
            let odd = HeaderValue::from_bytes(b"a:b \xff\t").expect("a value");
            let request = request.header("x-a", "1").header("x-a", "").header("x-odd", odd);
            let request = request.body(Body::from_bytes(body.into())).expect("a request");
            let copy = retry_copy(&request, None);
            assert_eq!(copy.is_some(), may, "{method} {body:?}");
            if let Some(copy) = copy {
                let copy = copy.into_request().expect("as it was");
                assert!(copy.extensions().get::<AcceptsTrailers>().is_some());
                assert_eq!((copy.method(), copy.uri()), (request.method(), request.uri()));
                assert_eq!(copy.headers(), request.headers());
            }
        }
    }

    /// A request with a field that overrides its method or path is sent once.
    #[test]
    fn method_override_prevents_retry() {
        for (name, may) in [
            ("x-http-method-override", false),
            ("X_HTTP_Method_Override", false),
            ("x-http-method", false),
            ("x-method-override", false),
            ("x-original-url", false),
            ("x-rewrite-url", false),
            ("x-http-methods", true),
        ] {
            let request = Request::get("/a").header(name, "POST").body(Body::from_bytes("".into()));
            let request = request.expect("a request");
            assert_eq!(retry_copy(&request, None).is_some(), may, "{name}");
            // The result of an earlier check is trusted.
            assert!(retry_copy(&request, Some(true)).is_none());
        }
    }
}
