//! The facts about a request for the steps that buffer its body or detach it from its client.

use fencegate_http::body::Body;
use fencegate_http_client::upstream::client_connection::AcceptsTrailers;
use fencegate_policies::plan::LargeBodyPolicy;
use hyper::Request;

/// A request whose body may have to be buffered in full, and that may outlive its client.
pub trait BufferableRequest {
    fn http(&mut self) -> &mut Request<Body>;
    fn needs_full_body(&self) -> bool;

    /// True if an earlier step has buffered the body in full.
    fn is_buffered(&self) -> bool {
        false
    }

    /// The treatment of a body that is too large to be buffered in full.
    fn large_body_policy(&self) -> LargeBodyPolicy {
        LargeBodyPolicy::Refuse
    }
}

/// Copies a request; `None` if its body was not buffered in full.
pub fn copy_buffered(http: &Request<Body>) -> Option<Box<Request<Body>>> {
    let mut copy = Box::new(Request::new(http.body().try_clone()?));
    *copy.method_mut() = http.method().clone();
    *copy.uri_mut() = http.uri().clone();
    *copy.version_mut() = http.version();
    *copy.headers_mut() = http.headers().clone();
    if let Some(takes) = http.extensions().get::<AcceptsTrailers>() {
        copy.extensions_mut().insert(*takes);
    }
    Some(copy)
}
