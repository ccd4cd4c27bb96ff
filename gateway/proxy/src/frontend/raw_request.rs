//! A request as the HTTP library delivered it, before the first step.

use std::rc::Rc;

use fencegate_http::{body::Body, connection_info::ConnectionInfo};
use hyper::Request;

use crate::request_context::RequestContext;

/// As the HTTP library delivered it.
pub struct RawRequest {
    pub http: Box<Request<Body>>,
    pub notes: Rc<RequestContext>,
    pub peer: Rc<ConnectionInfo>,
}
