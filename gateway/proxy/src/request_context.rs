//! The facts about one request for its answer, the log and the metrics. Each field is written by one step. If a later
//! step needs a fact, the type of the request carries it, so that it cannot be missing.

mod exchange;
mod identity;
mod source;

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_peers::PeerReportedOutcome;
use fencegate_policies::{
    key::ResourceKey,
    plan::{CommonServingPlan, RouteId},
    token::FencingToken,
};
use fencegate_process::gauge_guard::GaugeGuard;
use fencegate_refusal::RefusalReason;
use tokio::time::Instant;

pub use self::{
    exchange::{
        GuardAnswerFacts, ResponseReplayExtent, UpstreamAttempt, UpstreamExchange, UpstreamResponseFlags,
    },
    identity::VerifiedClientIdentity,
    source::{RequestArrival, RequestSource, RequestTraceIds},
};
use crate::concurrency_limit::ConcurrencyPermit;

/// The plan that serves a request. Each worker has its own reference count: a count that all workers share would move
/// from processor to processor with each request.
pub type PlanHandle = Rc<Arc<CommonServingPlan>>;

/// The facts about one request, as the steps find them. The comment of each field names the step that writes it.
#[derive(Default)]
pub struct RequestContext {
    /// `limit`: counts the request as in flight on its worker, until its answer has been sent.
    pub permit: OnceCell<Rc<ConcurrencyPermit>>,
    /// `hop`: the connection, the client and the hops of the request.
    pub source: OnceCell<Rc<RequestSource>>,
    /// `trace`: the trace of the request, and the id that its client can quote.
    pub trace: OnceCell<Rc<RequestTraceIds>>,
    /// `route`, at a guard `extract_claim`, at a filter `filter`: the route, the claim or the deadline of the request.
    pub subject: OnceCell<RoleSpecificRequestFacts>,
    /// `key`: the keys of a fenced request, or the reason for which a request on a route that observes has none.
    pub keys: OnceCell<Result<Rc<[ResourceKey]>, RefusalReason>>,
    /// `fence`: the wait for the lock, and its end.
    pub lock: Cell<LockFacts>,
    /// `guard_admission`: set if the guard only observed a refusal, or replayed an earlier answer.
    pub admission: OnceCell<ObservedOrReplayed>,
    /// `forward`: the last exchange with an upstream.
    pub exchange: RefCell<Option<Rc<UpstreamExchange>>>,
    /// `fence::peer_forward`: the gateway to which the request was forwarded.
    pub peer: RefCell<Option<PeerForwardFacts>>,
}

/// The subject of a request: its route at a gateway, its claim at a guard, its deadline at a filter.
pub enum RoleSpecificRequestFacts {
    /// A gateway has looked for the route of the request.
    Route(RouteFacts),
    /// A guard has read the claim of the request.
    Claim(FencingClaimFacts),
    /// A filter has read the moment after which the request must not be begun.
    Deadline(DeadlineFacts),
}

/// The route of a request.
pub struct RouteFacts {
    /// `None` where the plan lets requests without a route pass.
    pub route: Option<RouteId>,
    /// True if the route fences, and the request may be sent under that fence.
    is_fenced: Cell<bool>,
    /// Counts the request as in flight on its route.
    in_flight: Cell<Option<GaugeGuard>>,
}

/// The claim of a request, at a guard.
pub struct FencingClaimFacts {
    /// The token and the keys that the request has claimed.
    pub claimed: Option<(FencingToken, Rc<[ResourceKey]>)>,
    /// The reason for which the claim is not valid, if the guard let the request pass because it only observes.
    pub observed: Option<RefusalReason>,
    /// True if the guard has detected a proxy between it and the gateway.
    pub hop_seen: bool,
}

/// The deadline of a request, at a filter.
pub struct DeadlineFacts {
    pub has_deadline: bool,
    /// The reason for which the filter would have refused the request, if it did more than observe.
    pub observed: Option<RefusalReason>,
}

/// The lock of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct LockFacts {
    /// The moment when the wait for the lock began. `None` if the lock was already held at this gateway.
    pub wait_began: Option<Instant>,
    /// Time until the lock was granted, or the wait ended without it.
    pub waited: Option<Duration>,
    /// The dispatch in which the request was called, where its route allows that.
    pub called_from: Option<FencingToken>,
    /// The reason for which the request would have been refused, if the route did more than observe.
    pub observed: Option<RefusalReason>,
    /// True if the lock validity had ended when the answer came.
    pub is_validity_lost: bool,
}

/// The decision of a guard about a request that it did not simply send.
#[derive(Debug, Clone, Copy)]
pub enum ObservedOrReplayed {
    /// The guard would have refused the request for this reason, and let it pass because it only observes.
    Observed(RefusalReason),
    /// The request got the answer of an earlier execution.
    Replayed(ResponseReplayExtent),
}

/// A request that was forwarded to another gateway.
pub struct PeerForwardFacts {
    pub gateway: Arc<str>,
    /// The moment of the last sending.
    pub sent: Option<Instant>,
    /// The time from the last sending to the head of the answer, and the report in that head.
    pub answer: Option<(Duration, PeerReportedOutcome)>,
}

impl RouteFacts {
    pub(crate) fn new(route: Option<RouteId>, in_flight: GaugeGuard) -> Self {
        Self { route, is_fenced: Cell::new(false), in_flight: Cell::new(Some(in_flight)) }
    }
}

impl RequestContext {
    /// Records whether the route fences. Called once the route is certain: no other reading of the request leads to
    /// another route.
    pub(crate) fn mark_route_fenced(&self, is_fenced: bool) {
        if let Some(RoleSpecificRequestFacts::Route(facts)) = self.subject.get() {
            facts.is_fenced.set(is_fenced);
        }
    }

    /// Changes what is known of the lock. The fence step and its parts call this.
    pub(crate) fn update_lock(&self, change: impl FnOnce(&mut LockFacts)) {
        let mut lock = self.lock.get();
        change(&mut lock);
        self.lock.set(lock);
    }

    pub fn route(&self) -> Option<RouteId> {
        match self.subject.get()? {
            RoleSpecificRequestFacts::Route(facts) => facts.route,
            RoleSpecificRequestFacts::Claim(_) | RoleSpecificRequestFacts::Deadline(_) => None,
        }
    }

    /// Takes the guard that counts the request on its route; `None` before the route is known.
    pub(crate) fn take_route_count(&self) -> Option<GaugeGuard> {
        match self.subject.get()? {
            RoleSpecificRequestFacts::Route(facts) => facts.in_flight.take(),
            RoleSpecificRequestFacts::Claim(_) | RoleSpecificRequestFacts::Deadline(_) => None,
        }
    }

    pub fn is_fenced(&self) -> bool {
        self.subject.get().is_some_and(|subject| match subject {
            RoleSpecificRequestFacts::Route(facts) => facts.is_fenced.get(),
            RoleSpecificRequestFacts::Claim(facts) => facts.claimed.is_some() || facts.observed.is_some(),
            RoleSpecificRequestFacts::Deadline(facts) => facts.has_deadline,
        })
    }

    fn claim(&self) -> Option<&FencingClaimFacts> {
        match self.subject.get()? {
            RoleSpecificRequestFacts::Claim(facts) => Some(facts),
            RoleSpecificRequestFacts::Route(_) | RoleSpecificRequestFacts::Deadline(_) => None,
        }
    }

    pub fn keys(&self) -> Option<&Rc<[ResourceKey]>> {
        let claimed = || self.claim()?.claimed.as_ref().map(|(_, keys)| keys);
        self.keys.get().and_then(|keys| keys.as_ref().ok()).or_else(claimed)
    }

    /// The token of the last dispatch; at a guard the token of the claim, until the guard has dispatched the request.
    pub fn token(&self) -> Option<FencingToken> {
        if let Some((_, report)) = self.peer_answer() {
            return report.token;
        }
        match &*self.exchange.borrow() {
            Some(exchange) => exchange.token(),
            None => self.claim()?.claimed.as_ref().map(|(token, _)| *token),
        }
    }

    /// The reason for which the request would have been refused, if the route, the guard or the filter did more than
    /// observe.
    pub fn shadow_refusal(&self) -> Option<RefusalReason> {
        let by_guard = self.exchange.borrow().as_ref().and_then(|exchange| exchange.answer().by_guard);
        if let Some(by_guard) = by_guard {
            return by_guard.observed;
        }
        let subject = match self.subject.get() {
            Some(RoleSpecificRequestFacts::Claim(facts)) => facts.observed,
            Some(RoleSpecificRequestFacts::Deadline(facts)) => facts.observed,
            Some(RoleSpecificRequestFacts::Route(_)) | None => None,
        };
        let admission = match self.admission.get() {
            Some(ObservedOrReplayed::Observed(reason)) => Some(*reason),
            Some(ObservedOrReplayed::Replayed(_)) | None => None,
        };
        let keys = self.keys.get().and_then(|keys| keys.as_ref().err()).copied();
        self.lock.get().observed.or(keys).or(admission).or(subject)
    }

    /// The part of the answer that is replayed from an earlier one; `None` if no part is.
    pub fn replayed(&self) -> Option<ResponseReplayExtent> {
        if let Some(ObservedOrReplayed::Replayed(extent)) = self.admission.get() {
            return Some(*extent);
        }
        self.exchange.borrow().as_ref()?.answer().by_guard?.replayed
    }

    /// True if the answer does not report that the execution is over, although it came in full.
    pub fn is_answer_inconclusive(&self) -> bool {
        self.exchange.borrow().as_ref().is_some_and(|exchange| exchange.answer().is_inconclusive)
    }

    pub fn has_proxy_hop(&self) -> bool {
        self.claim().is_some_and(|claim| claim.hop_seen)
    }

    /// The time until the head of an answer of another gateway, and its report about the request.
    pub fn peer_answer(&self) -> Option<(Duration, PeerReportedOutcome)> {
        self.peer.borrow().as_ref()?.answer
    }

    /// The time of the last sending, the name of its receiver, and the time until the head of the answer.
    pub fn last_sending(&self) -> Option<(Instant, Arc<str>, Option<Duration>)> {
        if let Some(PeerForwardFacts { gateway, sent: Some(sent), answer }) = &*self.peer.borrow() {
            return Some((*sent, gateway.clone(), answer.map(|(after, _)| after)));
        }
        let exchange = self.exchange.borrow();
        let exchange = exchange.as_ref()?;
        let attempt = exchange.attempt();
        attempt
            .as_ref()
            .map(|attempt| (attempt.began, attempt.upstream.clone(), exchange.time_to_response_head()))
    }
}
