//! Which requests may be sent a second time although the first may have arrived: requests without a lock that by
//! their own definition change nothing (RFC 9110, 9.2.1 and 9.2.2).

use fencegate_http::{body::Body, upstream::speak::TakesTrailers};
use hyper::{
    Method, Request, Version,
    body::Body as _,
    header::{HeaderName, HeaderValue},
};

use crate::steps::route::overridden;

/// The head of a request that may be sent again, as one text. Most spares are never used, and a copy of all fields
/// would be costly for each request.
pub(super) struct Spare {
    method: Method,
    takes_trailers: bool,
    /// The target and all fields, each with its end of line, which none of them can contain.
    lines: Vec<u8>,
}

/// A copy of the request, for the case that a pooled connection dies under it without a byte of an answer. Services
/// close idle connections when they like, so every client with a pool meets this. Other methods, and requests with a
/// body, are left to the client to repeat.
pub(super) fn once_more(http: &Request<Body>) -> Option<Spare> {
    let safe = matches!(*http.method(), Method::GET | Method::HEAD);
    // A GET with a field that overrides its method changes something, if the service obeys that field.
    let is_itself = overridden(http.headers()).is_none();
    if !safe || !is_itself || !http.body().is_end_stream() {
        return None;
    }
    let mut lines = Vec::with_capacity(USUAL);
    lines.extend_from_slice(http.uri().path_and_query()?.as_str().as_bytes());
    lines.push(b'\n');
    for (name, value) in http.headers() {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.push(b':');
        lines.extend_from_slice(value.as_bytes());
        lines.push(b'\n');
    }
    let takes_trailers = http.extensions().get::<TakesTrailers>().is_some();
    Some(Spare { method: http.method().clone(), takes_trailers, lines })
}

/// The usual size of a head in bytes.
const USUAL: usize = 1000;

impl Spare {
    /// `None` would be a mistake of ours: the target and the fields were valid before.
    pub(super) fn request(self) -> Option<Box<Request<Body>>> {
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
            request.extensions_mut().insert(TakesTrailers);
        }
        Some(Box::new(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_without_a_body_may_be_sent_a_second_time() {
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
            let request = Request::builder().method(method).uri("/a?b").extension(TakesTrailers);
            let odd = HeaderValue::from_bytes(b"a:b \xff\t").expect("a value");
            let request = request.header("x-a", "1").header("x-a", "").header("x-odd", odd);
            let request = request.body(Body::whole(body.into())).expect("a request");
            let copy = once_more(&request);
            assert_eq!(copy.is_some(), may, "{method} {body:?}");
            if let Some(copy) = copy {
                let copy = copy.request().expect("as it was");
                assert!(copy.extensions().get::<TakesTrailers>().is_some());
                assert_eq!((copy.method(), copy.uri()), (request.method(), request.uri()));
                assert_eq!(copy.headers(), request.headers());
            }
        }
    }

    #[test]
    fn what_asks_to_be_taken_for_another_request_is_sent_once() {
        for (name, may) in [
            ("x-http-method-override", false),
            ("X_HTTP_Method_Override", false),
            ("x-http-method", false),
            ("x-method-override", false),
            ("x-original-url", false),
            ("x-rewrite-url", false),
            ("x-http-methods", true),
        ] {
            let request = Request::get("/a").header(name, "POST").body(Body::whole("".into()));
            assert_eq!(once_more(&request.expect("a request")).is_some(), may, "{name}");
        }
    }
}
