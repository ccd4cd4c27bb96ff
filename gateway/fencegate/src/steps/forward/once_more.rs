//! Which requests may be sent a second time although the first may have arrived: those that change nothing, by their
//! own definition (RFC 9110, 9.2.1 and 9.2.2), and that nobody holds a key for.

use fencegate_http::body::Body;
use hyper::{Method, Request, body::Body as _};

use crate::steps::{incoming::copy, route::overridden};

/// The same request, to be sent once more where a pooled connection dies under it without a byte of an answer. A service
/// closes what lies idle when it likes, so this happens to whoever keeps connections. Other methods, and whatever has a
/// body, are left to the client.
pub(super) fn once_more(http: &Request<Body>) -> Option<Box<Request<Body>>> {
    let safe = matches!(*http.method(), Method::GET | Method::HEAD);
    // A GET that asks to be taken for a POST changes something where the service does as it is asked.
    let is_itself = overridden(http.headers()).is_none();
    if safe && is_itself && http.body().is_end_stream() { copy(http) } else { None }
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
            let request = Request::builder().method(method).uri("/a?b").header("x-a", "1");
            let request = request.body(Body::whole(body.into())).expect("a request");
            let copy = once_more(&request);
            assert_eq!(copy.is_some(), may, "{method} {body:?}");
            if let Some(copy) = copy {
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
