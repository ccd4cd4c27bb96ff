//! What is known of a request at each point of its path. A stage is made only by the step before it, so two steps in
//! the wrong order do not compile.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_guard::{patience::Waiting, register::Claim};
use fencegate_http::{
    body::Body,
    listen::interim::Saying,
    peer::Peer,
    share::Share,
    upstream::{gate::Gate, speak::TakesTrailers},
};
use fencegate_lock::tenures::tenure::{Dispatch, Tenure};
use fencegate_policies::{
    host::CanonicalHost,
    key::ResourceKey,
    operation::Operation,
    path::CanonicalPath,
    plan::{self, Fence, LargeBodies, Mode, Plan, RouteId, UpstreamId},
    token::Token,
};
use fencegate_process::counted::Counted;
use hyper::{HeaderMap, Request, header::HeaderValue};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    edition::Running,
    front::Entrance,
    metrics::Holding,
    peers::{Forwarded, Told},
    refusal::Reason,
    steps::{
        claim::present::{FENCING_OPERATION, FENCING_TICKET},
        limit::Permit,
        trace::Trace,
    },
    ticketing::Ticketing,
};

/// The plan that a request is served by, counted at its worker: a count that all workers share would go from one
/// processor to another with each request.
pub type Planned = Rc<Arc<Plan>>;

/// As the HTTP library gave it.
pub struct Arrived {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub peer: Rc<Peer>,
}

/// Can be forwarded without two parties reading it differently, but for its path on unfenced upstreams.
pub struct Admitted {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub peer: Rc<Peer>,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
}

/// No hop-by-hop field, no field that only we may write.
pub struct Clean {
    pub request: Admitted,
    /// The fields taken off that only we may write: claims, until somebody has verified them.
    pub presented: HeaderMap,
}

/// Route and upstream are fixed; host and path are what will be forwarded.
pub struct Routed {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub plan: Planned,
    pub host: CanonicalHost,
    pub path: CanonicalPath,
    /// `None` for what no route matches and the plan lets pass.
    pub route: Option<RouteId>,
    pub upstream: UpstreamId,
    /// On fenced routes.
    pub running: Option<Rc<Running>>,
}

/// The body of a fenced request is here in full; where its route streams large ones, as much of it as is taken before.
pub struct Loaded<R>(pub R);

/// A request that may have to be here in full, and to outlive its client.
pub trait Incoming {
    fn http(&mut self) -> &mut Request<Body>;
    fn is_fenced(&self) -> bool;

    /// What becomes of a body that is larger than what is taken in full.
    fn large_bodies(&self) -> LargeBodies {
        LargeBodies::Refuse
    }
}

/// The keys are fixed.
pub struct Keyed {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub plan: Planned,
    pub upstream: UpstreamId,
    pub fenced: Option<Fenced>,
}

/// On a fenced route.
pub struct Fenced {
    pub route: RouteId,
    /// Sorted, without doubles, at least one.
    pub keys: Rc<[ResourceKey]>,
    pub mode: Mode,
    /// What is to happen at most once.
    pub operation: Option<Rc<Operation>>,
    /// Kept for as long as anything of the request runs: another plan may wait for its end.
    pub running: Rc<Running>,
}

/// No longer cancelled by its client's going away; who waits can still see it.
pub struct Detached<R> {
    pub request: R,
    pub client: Client,
}

/// At a guard: what it asks to be let in with is known, and may be refused.
pub struct Presented {
    pub http: Box<Request<Body>>,
    pub notes: Rc<Notes>,
    pub plan: Planned,
    pub upstream: UpstreamId,
    /// `None` for what may pass without a token.
    pub claimed: Option<Claimed>,
}

/// What a gateway claims of a dispatch; its form and its ticket are in order.
pub struct Claimed {
    pub claim: Claim,
    pub operation: Option<Operation>,
}

/// The keys are ours until the hold is dropped.
pub struct Held<H> {
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

/// A tenure in the hands of one request.
#[derive(Clone)]
pub struct Hold {
    pub tenure: Rc<Tenure>,
    pub keys: Rc<[ResourceKey]>,
    pub mode: Mode,
    pub counted: Rc<Holding>,
    /// For a guard, where tickets are signed.
    pub tickets: Option<Arc<Ticketing>>,
    pub operation: Option<Rc<Operation>>,
    pub running: Rc<Running>,
    /// Of what its client may wait for and hold, where that is limited.
    pub share: Option<Rc<Share>>,
}

impl Right for Hold {
    fn dispatch(&self) -> Option<Dispatch> {
        self.tenure.dispatch()
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn stamp(&self, token: Token, headers: &mut HeaderMap) {
        let ticket = self.tickets.as_ref().and_then(|tickets| tickets.ticket(&self.keys, token, self.mode));
        if let Some(ticket) = ticket {
            headers.insert(FENCING_TICKET, ticket);
        }
        if let Some(operation) = &self.operation {
            let value = HeaderValue::from_str(&operation.to_string()).expect("hex digits and numbers");
            headers.insert(FENCING_OPERATION, value);
        }
    }
}

impl Incoming for Routed {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn is_fenced(&self) -> bool {
        self.fence().is_some()
    }

    fn large_bodies(&self) -> LargeBodies {
        self.fence().map(|fence| fence.large_bodies).unwrap_or_default()
    }
}

impl Incoming for Keyed {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }
}

impl Incoming for Presented {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn is_fenced(&self) -> bool {
        self.claimed.is_some()
    }
}

impl<R: Incoming> Incoming for Loaded<R> {
    fn http(&mut self) -> &mut Request<Body> {
        self.0.http()
    }

    fn is_fenced(&self) -> bool {
        self.0.is_fenced()
    }
}

impl Routed {
    /// How its route takes the lock; `None` on unfenced ones.
    pub fn fence(&self) -> Option<&Fence> {
        self.plan.routes.get(self.route?).fence.as_ref()
    }
}

impl Keyed {
    /// The same request once more; `None` where its body is not here in full.
    pub fn again(&self) -> Option<Self> {
        let http = copy(&self.http)?;
        let Self { notes, plan, upstream, .. } = self;
        Some(Self { http, notes: notes.clone(), plan: plan.clone(), upstream: *upstream, fenced: None })
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

impl Fenced {
    pub fn fence<'a>(&self, plan: &'a Plan) -> &'a Fence {
        plan.routes.get(self.route).fence.as_ref().expect("a request is fenced by a route that fences")
    }
}

/// The client of a detached request.
pub struct Client {
    /// `None` for one who is not detached: its request goes with it.
    gone: Option<oneshot::Receiver<()>>,
}

/// Lives as long as the client waits for its answer.
pub struct Presence {
    _here: oneshot::Sender<()>,
}

pub fn presence() -> (Presence, Client) {
    let (here, gone) = oneshot::channel();
    (Presence { _here: here }, Client { gone: Some(gone) })
}

impl Client {
    /// Of a request that ends with its client.
    pub fn attached() -> Self {
        Self { gone: None }
    }

    /// The client has hung up already.
    pub fn is_gone(&mut self) -> bool {
        let told = self.gone.as_mut().map(oneshot::Receiver::try_recv);
        told.is_some_and(|told| !matches!(told, Err(oneshot::error::TryRecvError::Empty)))
    }

    /// Returns when the client has hung up.
    pub async fn gone(&mut self) {
        // Who has been told once that it has gone must not ask the channel again.
        if self.is_gone() {
            return;
        }
        match &mut self.gone {
            // Nothing is ever sent: the other end is dropped.
            Some(gone) => drop(gone.await),
            None => std::future::pending().await,
        }
    }
}

impl Waiting for Client {
    async fn gone(&mut self) {
        Self::gone(self).await;
    }
}

/// How much of an earlier answer is given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    Whole,
    WithoutBody,
}

/// What the steps leave behind for the answer, the log and the metrics.
#[derive(Default)]
pub struct Notes {
    /// Until the request is counted under its plan.
    pub entrance: RefCell<Option<Entrance>>,
    pub route: Cell<Option<RouteId>>,
    /// Counts the exchange as in flight on its worker.
    pub permit: OnceCell<Rc<Permit>>,
    /// Counts the request as in flight on its route, once that is known.
    pub in_flight: RefCell<Option<Counted>>,
    pub fenced: Cell<bool>,
    /// It came over the listener for gateways.
    pub of_gateways: Cell<bool>,
    /// Another gateway has sent it on to us, and has proven to be one.
    pub forwarded: OnceCell<Forwarded>,
    /// The gateway that we have sent it on to.
    pub forwarded_to: RefCell<Option<Arc<str>>>,
    /// What that gateway's answer says, which is then the client's.
    pub told: Cell<Option<Told>>,
    /// How many processes forwarded the request before this one.
    pub hops: Cell<u32>,
    /// On whose behalf it came, as far as we believe.
    pub client: Cell<Option<IpAddr>>,
    pub trace: Cell<Option<Trace>>,
    /// What its client can quote.
    pub request_id: OnceCell<HeaderValue>,
    /// When it was sent the last time, and to which upstream.
    pub sent: RefCell<Option<(Instant, Arc<str>)>>,
    /// From the last sending to the head of the upstream's answer.
    pub upstream: Cell<Option<Duration>>,
    pub keys: OnceCell<Rc<[ResourceKey]>>,
    /// What the client calls what is to happen at most once. Shown to who asks for it, and never stored.
    pub named: OnceCell<plan::Operation>,
    /// Since when it waits for its lock. `None` where that was here already.
    pub asked: Cell<Option<Instant>>,
    /// Time until the lock was granted, or the wait given up.
    pub waited: Cell<Option<Duration>>,
    /// Of the last dispatch.
    pub token: Cell<Option<Token>>,
    /// The session could not be proven any more when the answer came.
    pub proof_lost: Cell<bool>,
    /// The answer is one that was given before.
    pub replayed: Cell<Option<Replayed>>,
    /// What would have been refused, were it not only looked on.
    pub observed: Cell<Option<Reason>>,
    /// The upstream has refused the token as stale: nothing more under this tenure.
    pub retires: Cell<bool>,
    /// A hop between gateway and guard showed itself.
    pub hop_seen: Cell<bool>,
    /// Where what the upstream says before its answer goes.
    pub interims: OnceCell<Saying>,
    /// Of the connection that the last attempt was sent on.
    pub gate: RefCell<Option<Rc<Gate>>>,
}

impl Notes {
    /// It is being sent. What came of an earlier sending is over.
    pub fn sends(&self, at: Instant, upstream: &Arc<str>) {
        self.sent.replace(Some((at, upstream.clone())));
        self.upstream.set(None);
    }
}
