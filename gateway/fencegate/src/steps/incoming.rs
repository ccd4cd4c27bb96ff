//! What the steps that take a body in full, and those that let its client go, have to know of a request.

use fencegate_http::{body::Body, upstream::speak::TakesTrailers};
use fencegate_policies::plan::LargeBodies;
use hyper::Request;

/// A request that may have to be here in full, and to outlive its client.
pub trait Incoming {
    fn http(&mut self) -> &mut Request<Body>;
    fn is_fenced(&self) -> bool;

    /// What becomes of a body that is larger than what is taken in full.
    fn large_bodies(&self) -> LargeBodies {
        LargeBodies::Refuse
    }
}

/// A request once more; `None` where its body is not here in full.
pub fn copy(http: &Request<Body>) -> Option<Box<Request<Body>>> {
    let mut copy = Box::new(Request::new(http.body().again()?));
    *copy.method_mut() = http.method().clone();
    *copy.uri_mut() = http.uri().clone();
    *copy.version_mut() = http.version();
    *copy.headers_mut() = http.headers().clone();
    if let Some(takes) = http.extensions().get::<TakesTrailers>() {
        copy.extensions_mut().insert(*takes);
    }
    Some(copy)
}
