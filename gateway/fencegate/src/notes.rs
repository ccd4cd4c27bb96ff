//! What the steps of one request share: the plan that it is served by, and what they leave behind for its answer.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_http::{course::interim::Saying, upstream::gate::Gate};
use fencegate_policies::{
    key::ResourceKey,
    plan::{self, Plan, RouteId},
    token::Token,
};
use fencegate_process::counted::Counted;
use hyper::header::HeaderValue;
use tokio::time::Instant;

use crate::{
    calling_dispatch::ShownTicket,
    edition::{Entrance, Running},
    hop_name::HopName,
    in_flight::Permit,
    leases::ShownLease,
    refusal::Reason,
    siblings::{Forwarded, Reported},
    trace::Trace,
};

/// The plan that a request is served by, counted at its worker: a count that all workers share would go from one
/// processor to another with each request.
pub type Planned = Rc<Arc<Plan>>;

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
    pub told: Cell<Option<Reported>>,
    /// The ticket of the dispatch that it was called from, where its route may listen to it.
    pub shown: OnceCell<ShownTicket>,
    /// The lease that it is under, as it shows that, where the process grants any.
    pub lease: OnceCell<ShownLease>,
    /// That dispatch, where its route does.
    pub called_from: Cell<Option<Token>>,
    /// This process, once the request is one that it stands in between for.
    pub came_by: OnceCell<Rc<HopName>>,
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
    pub named: OnceCell<plan::OperationName>,
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
    /// On a route that only observes, until its answer is here: counts what may pass without a lock.
    pub unlocked: RefCell<Option<Rc<Running>>>,
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
