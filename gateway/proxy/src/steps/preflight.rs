//! Answers the preflights of pages whose origin the listener allows. A preflight only asks whether a page may send a
//! request: it has no route, takes no lock, and the service does not see it.

use std::rc::Rc;

use fencegate_http::body::{Body, Reply};
use hyper::StatusCode;

use super::trace::TracedRequest;
use crate::{
    cors::{CorsHeaders, is_preflight},
    handler::ShortCircuit,
};

/// Answers a preflight whose origin `cors` allows. `cors` is `None` where the listener allows no pages. Other
/// preflights go on to the service, which may allow the page.
pub(crate) fn answer_preflight(
    cors: &Option<Rc<CorsHeaders>>,
    traced: TracedRequest,
) -> Result<TracedRequest, ShortCircuit> {
    let TracedRequest { request, .. } = &traced;
    // A forwarded request is not answered here: the gateway that forwards it has applied its own policy.
    let is_forwarded = request.source.arrival.from_gateways;
    let allows = |cors: &&Rc<CorsHeaders>| {
        is_preflight(&request.http) && cors.allowed_origin(request.http.headers()).is_some()
    };
    let Some(cors) = cors.as_ref().filter(|_| !is_forwarded).filter(allows) else { return Ok(traced) };
    let mut reply = Reply::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    // `Access-Control-Allow-Origin` is added to all answers by a later step.
    cors.add_preflight_headers(reply.headers_mut());
    Err(ShortCircuit::with_reply(reply))
}
