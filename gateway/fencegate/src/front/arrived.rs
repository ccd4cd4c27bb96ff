//! A request as the HTTP library gave it, before the first step.

use std::rc::Rc;

use fencegate_http::{body::Body, peer::Peer};
use hyper::Request;

use crate::notes::Notes;

/// As the HTTP library gave it.
pub struct Arrived {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub peer: Rc<Peer>,
}
