//! Answers the preflights of pages whose origin the listener allows. A preflight asks about a request and is none: it
//! has no route, takes no lock, and the service does not see it.

use std::rc::Rc;

use fencegate_http::body::{Body, Reply};
use hyper::StatusCode;

use super::trace::TracedRequest;
use crate::{
    cors::{CorsHeaders, is_preflight},
    handler::ShortCircuit,
};

/// `cors`: `None` where the listener allows no pages. The preflight of a page that is not allowed goes on: the service may know
/// the page.
pub(crate) fn answer_preflight(
    cors: &Option<Rc<CorsHeaders>>,
    traced: TracedRequest,
) -> Result<TracedRequest, ShortCircuit> {
    let TracedRequest { request, .. } = &traced;
    // Another gateway has looked at what it forwards, by its own policy.
    let is_forwarded = request.source.arrival.from_gateways;
    let allows = |cors: &&Rc<CorsHeaders>| {
        is_preflight(&request.http) && cors.allowed_origin(request.http.headers()).is_some()
    };
    let Some(cors) = cors.as_ref().filter(|_| !is_forwarded).filter(allows) else { return Ok(traced) };
    let mut reply = Reply::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    // The origin itself is added to all answers.
    cors.add_preflight_headers(reply.headers_mut());
    Err(ShortCircuit::with_reply(reply))
}
