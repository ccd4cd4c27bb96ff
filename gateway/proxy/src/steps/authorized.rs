//! A request that may be sent, and the right to send it: the lock that the gateway holds, or the admission by the
//! guard.

use std::{rc::Rc, sync::Arc};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_guard_client::dispatch_window::DispatchWindow;
use fencegate_http::body::Body;
use fencegate_lock::manager::grant_guard::UpstreamDispatch;
use fencegate_policies::{
    key::ResourceKey,
    not_after::NotAfter,
    plan::{LockMode, RouteId, UpstreamId},
    token::FencingToken,
};
use fencegate_process::clock::SendPermission;
use hyper::{HeaderMap, Request};

use crate::request_context::{
    PlanHandle, RequestContext, RequestSource, UpstreamExchange, VerifiedClientIdentity,
};

pub struct DispatchableRequest<H> {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub upstream: UpstreamId,
    /// `None` at guards and filters, and for a request that matches no route.
    pub route: Option<RouteId>,
    pub source: Rc<RequestSource>,
    /// The verified identity of the client; `None` if nothing was verified, and at guards and filters.
    pub identity: Option<Rc<VerifiedClientIdentity>>,
    /// True if a field of the request overrides its method or path. `None` where this was not checked.
    pub has_override: Option<bool>,
    /// Counts a request that passes without a lock although its route fences. A tunnel keeps it.
    pub unlocked: Option<Rc<RunningRequestGuard>>,
    pub right: DispatchRight<H>,
    /// The record in which the sending is written.
    pub exchange: Rc<UpstreamExchange>,
}

impl<H> DispatchableRequest<H> {
    /// Makes a request without a route. Its sending is recorded in `exchange`.
    pub fn without_route(
        http: Box<Request<Body>>,
        context: Rc<RequestContext>,
        plan: PlanHandle,
        upstream: UpstreamId,
        source: Rc<RequestSource>,
        right: DispatchRight<H>,
        exchange: Rc<UpstreamExchange>,
    ) -> Self {
        Self {
            http,
            context,
            plan,
            upstream,
            route: None,
            identity: None,
            source,
            has_override: None,
            unlocked: None,
            right,
            exchange,
        }
    }
}

/// The right by which a request may be sent.
pub enum DispatchRight<H> {
    /// The route of the request, or at a guard or filter its method, is unfenced.
    Unfenced,
    /// The request is fenced, and passes without a lock or a token because the route or the guard only observes.
    Observed,
    /// The request holds its keys until this value is dropped.
    Held(H),
    /// At a filter: the request may be sent as long as this permission holds.
    Until(Arc<dyn SendPermission>),
}

impl<H> DispatchRight<H> {
    pub fn held(&self) -> Option<&H> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Unfenced | Self::Observed | Self::Until(_) => None,
        }
    }

    /// The permission under which a filter sends a request, which has no token of its own.
    pub fn permission(&self) -> Option<&Arc<dyn SendPermission>> {
        match self {
            Self::Until(permission) => Some(permission),
            Self::Unfenced | Self::Observed | Self::Held(_) => None,
        }
    }
}

/// The right to dispatch a request: its token, and the deadline until which the token is certainly valid.
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
