//! A request that may be sent, and the right to send it: what the gateway holds, or what the guard has let in.

use std::rc::Rc;

use fencegate_http::body::Body;
use fencegate_lock::tenures::tenure::Dispatch;
use fencegate_policies::{
    key::ResourceKey,
    plan::{Mode, UpstreamId},
    token::Token,
};
use hyper::{HeaderMap, Request};

use crate::notes::{Notes, Planned};

/// The keys are ours until the hold is dropped.
pub struct Permitted<H> {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub plan: Planned,
    pub upstream: UpstreamId,
    /// `None` on unfenced routes.
    pub hold: Option<H>,
}

/// The right to dispatch: what a request is stamped with and proven by.
pub trait Right: 'static {
    /// `None` when no further dispatch is possible.
    fn dispatch(&self) -> Option<Dispatch>;
    fn keys(&self) -> &[ResourceKey];
    fn mode(&self) -> Mode;
    /// Fields beside token, number, key and mode.
    fn stamp(&self, token: Token, headers: &mut HeaderMap);
}
