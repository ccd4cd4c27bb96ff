//! A request as the HTTP library delivered it, before the first step.

use std::rc::Rc;

use fencegate_config::active_config::PipelineEntryGuard;
use fencegate_http::body::Body;
use hyper::Request;

use crate::request_context::{RequestArrival, RequestContext};

/// As the HTTP library delivered it.
pub struct RawRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub arrival: RequestArrival,
    /// Held until the request is counted under its plan.
    pub entry: Option<PipelineEntryGuard>,
}
