//! What is known of a request at each point of its path. A stage is made only by the step before it, so two steps in
//! the wrong order do not compile.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_policies::{
    host::CanonicalHost,
    key::ResourceKey,
    path::CanonicalPath,
    plan::{Fence, Mode, Plan, RouteId, UpstreamId},
    token::Token,
};
use hyper::Request;
use tokio::sync::oneshot;

use crate::{
    admin::metrics::{Counted, Holding},
    body::Body,
    lock::tenure::Tenure,
    steps::limit::Permit,
};

/// As the HTTP library gave it.
pub struct Arrived {
    pub http: Request<Body>,
    pub notes: Rc<Notes>,
}

/// Can be forwarded without two parties reading it differently, but for its path on unfenced upstreams.
pub struct Admitted {
    pub http: Request<Body>,
    pub notes: Rc<Notes>,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
}

/// No hop-by-hop field, no field that only we may write.
pub struct Clean(pub Admitted);

/// Route and upstream are fixed; host and path are what will be forwarded.
pub struct Routed {
    pub http: Request<Body>,
    pub notes: Rc<Notes>,
    pub plan: Arc<Plan>,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
    /// `None` for what no route matches and the plan lets pass.
    pub route: Option<RouteId>,
    pub upstream: UpstreamId,
}

/// The body of a fenced request is here in full.
pub struct Loaded(pub Routed);

/// The keys are fixed.
pub struct Keyed {
    pub http: Request<Body>,
    pub notes: Rc<Notes>,
    pub plan: Arc<Plan>,
    pub upstream: UpstreamId,
    pub fenced: Option<Fenced>,
}

/// On a fenced route.
pub struct Fenced {
    pub route: RouteId,
    /// Sorted, without doubles, at least one.
    pub keys: Rc<[ResourceKey]>,
    pub mode: Mode,
}

/// No longer cancelled by its client's going away; who waits can still see it.
pub struct Detached {
    pub request: Keyed,
    pub client: Client,
}

/// The keys are ours until the tenure is dropped.
pub struct Held {
    pub http: Request<Body>,
    pub notes: Rc<Notes>,
    pub plan: Arc<Plan>,
    pub upstream: UpstreamId,
    /// `None` on unfenced routes.
    pub hold: Option<Hold>,
}

/// A tenure in the hands of one request.
#[derive(Clone)]
pub struct Hold {
    pub tenure: Rc<Tenure>,
    pub keys: Rc<[ResourceKey]>,
    pub mode: Mode,
    pub counted: Rc<Holding>,
}

impl Routed {
    /// How its route takes the lock; `None` on unfenced ones.
    pub fn fence(&self) -> Option<&Fence> {
        self.plan.routes.get(self.route?).fence.as_ref()
    }
}

impl Fenced {
    pub fn fence<'a>(&self, plan: &'a Plan) -> &'a Fence {
        plan.routes.get(self.route).fence.as_ref().expect("a request is fenced by a route that fences")
    }
}

/// The client of a detached request.
pub struct Client {
    gone: oneshot::Receiver<()>,
}

/// Lives as long as the client waits for its answer.
pub struct Presence {
    _here: oneshot::Sender<()>,
}

pub fn presence() -> (Presence, Client) {
    let (here, gone) = oneshot::channel();
    (Presence { _here: here }, Client { gone })
}

impl Client {
    /// Returns when the client has hung up; never twice.
    pub async fn gone(&mut self) {
        // Nothing is ever sent: the other end is dropped.
        drop((&mut self.gone).await);
    }
}

/// What the steps leave behind for the answer, the log and the metrics.
#[derive(Default)]
pub struct Notes {
    pub route: Cell<Option<RouteId>>,
    /// Counts the exchange as in flight on its worker.
    pub permit: OnceCell<Rc<Permit>>,
    /// Counts the request as in flight on its route, once that is known.
    pub in_flight: RefCell<Option<Counted>>,
    pub fenced: Cell<bool>,
    pub keys: OnceCell<Rc<[ResourceKey]>>,
    /// Time until the lock was granted, or the wait given up.
    pub waited: Cell<Option<Duration>>,
    /// Of the last dispatch.
    pub token: Cell<Option<Token>>,
    /// The session could not be proven any more when the answer came.
    pub proof_lost: Cell<bool>,
}

/// Keys as they stand in `Fencing-Key` and in logs. No key has a space in it.
pub fn listed(keys: &[ResourceKey]) -> String {
    keys.iter().map(ResourceKey::as_str).collect::<Vec<_>>().join(", ")
}
