//! Which requests may be sent a second time although the first may have arrived: those that change nothing, by their
//! own definition (RFC 9110, 9.2.1 and 9.2.2), and that nobody holds a key for.

use hyper::{Method, Request, body::Body as _};

use crate::{body::Body, stage};

/// The same request, to be sent once more where a pooled connection dies under it without a byte of an answer. A service
/// closes what lies idle when it likes, so this happens to whoever keeps connections. Other methods, and whatever has a
/// body, are left to the client.
pub(super) fn once_more(http: &Request<Body>) -> Option<Box<Request<Body>>> {
    let safe = matches!(*http.method(), Method::GET | Method::HEAD);
    if safe && http.body().is_end_stream() { stage::copy(http) } else { None }
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
}
