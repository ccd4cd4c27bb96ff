//! A request that may be sent, and the right to send it: the lock that the gateway holds, or the admission by the
//! guard.

use std::rc::Rc;

use fencegate_guard_client::dispatch_window::DispatchWindow;
use fencegate_http::body::Body;
use fencegate_lock::manager::grant_guard::UpstreamDispatch;
use fencegate_policies::{
    key::ResourceKey,
    not_after::NotAfter,
    plan::{LockMode, UpstreamId},
    token::FencingToken,
};
use hyper::{HeaderMap, Request};

use crate::request_context::{PlanHandle, RequestContext};

/// The keys are held until `hold` is dropped.
pub struct DispatchableRequest<H> {
    pub http: Box<Request<Body>>,
    pub notes: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub upstream: UpstreamId,
    /// `None` on unfenced routes.
    pub hold: Option<H>,
}

/// The right to dispatch a request: its token, and the deadline until which the token is certainly good.
pub trait DispatchPermit: 'static {
    /// `None` when no further dispatch is possible.
    fn next_dispatch(&self) -> Option<UpstreamDispatch>;
    fn keys(&self) -> &[ResourceKey];
    fn mode(&self) -> LockMode;
    /// Adds the fields beside token, number, key and mode. Returns the moment after which the dispatch must not be
    /// started: that of `span`, or an earlier one from the ticket.
    fn add_permit_headers(
        &self,
        token: FencingToken,
        headers: &mut HeaderMap,
        span: DispatchWindow,
    ) -> NotAfter;
}
