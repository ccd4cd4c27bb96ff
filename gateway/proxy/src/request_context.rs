//! The state that the steps of one request share: its plan, and the records for its answer.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_config::active_config::{PipelineEntryGuard, RunningRequestGuard};
use fencegate_guard_client::callback::CallbackTicket;
use fencegate_http::{
    buffered::HeadReservation, connection_info::ConnectionInfo,
    connection_state::informational::InformationalSender,
};
use fencegate_http_client::upstream::{address::EndpointAddress, gate::WriteGate};
use fencegate_leases::PresentedLease;
use fencegate_peers::{PeerForwardHeader, PeerReportedOutcome};
use fencegate_policies::{
    key::ResourceKey,
    plan::{self, RouteId, ServingPlan},
    token::FencingToken,
};
use fencegate_process::{
    clock::{BootInstant, SendPermission},
    gauge_guard::GaugeGuard,
};
use fencegate_protocol::{clock_header::ClockHeader, trace::TraceContext};
use fencegate_refusal::RefusalReason;
use hyper::header::HeaderValue;
use tokio::time::Instant;

use crate::{concurrency_limit::ConcurrencyPermit, via::ViaName};

/// The plan that serves a request. Each worker has its own reference count: a count that all workers share would move
/// from processor to processor with each request.
pub type PlanHandle = Rc<Arc<ServingPlan>>;

/// How much of an earlier answer is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayExtent {
    Whole,
    WithoutBody,
}

/// The records of the steps for the answer, the log and the metrics.
#[derive(Default)]
pub struct RequestContext {
    /// Held until the request is counted under its plan.
    pub entrance: RefCell<Option<PipelineEntryGuard>>,
    /// The memory of a large head.
    pub head: Cell<Option<HeadReservation>>,
    pub route: Cell<Option<RouteId>>,
    /// Counts the exchange as in flight on its worker.
    pub permit: OnceCell<Rc<ConcurrencyPermit>>,
    /// Counts the request on its route, once the route is known.
    pub in_flight: RefCell<Option<GaugeGuard>>,
    pub fenced: Cell<bool>,
    /// Whether a field of the request overrides its method or path. `None` where this was not checked.
    pub overridden: Cell<Option<bool>>,
    /// The request came over the listener for gateways.
    pub of_gateways: Cell<bool>,
    /// Another gateway has forwarded the request, and has proven to be a gateway.
    pub forwarded: OnceCell<PeerForwardHeader>,
    /// The gateway to which this one has forwarded the request.
    pub forwarded_to: RefCell<Option<Arc<str>>>,
    /// The report of that gateway about the request.
    pub told: Cell<Option<PeerReportedOutcome>>,
    /// The ticket of the dispatch in which the request was called, where some route may be called back.
    pub shown: OnceCell<CallbackTicket>,
    /// The lease that the request shows, where the process grants leases.
    pub lease: OnceCell<PresentedLease>,
    /// The dispatch in which the request was called, where its route allows that.
    pub called_from: Cell<Option<FencingToken>>,
    /// The name of this process, once it counts as a hop of the request.
    pub came_by: OnceCell<Rc<ViaName>>,
    /// How many processes forwarded the request before this one.
    pub hops: Cell<u32>,
    /// The client of the request, as far as its proxies are trusted.
    pub client: Cell<Option<IpAddr>>,
    /// The connection of a client that has shown a certificate.
    pub certified: OnceCell<Rc<ConnectionInfo>>,
    /// The digest of the identity in the client's certificate, where it is a part of the request's fingerprint. A
    /// forwarded request carries it.
    pub certificate: OnceCell<Arc<str>>,
    pub trace: Cell<Option<TraceContext>>,
    /// An id of the request that its client can quote.
    pub request_id: OnceCell<HeaderValue>,
    /// The time of the last sending, and its upstream.
    pub sent: RefCell<Option<(Instant, Arc<str>)>>,
    /// From the last sending to the head of the upstream's answer.
    pub upstream: Cell<Option<Duration>>,
    pub keys: OnceCell<Rc<[ResourceKey]>>,
    /// The client's name for the operation. `fencegate explain` shows it; it is never stored.
    pub named: OnceCell<plan::OperationName>,
    /// When the wait for the lock began. `None` if the lock was held here already.
    pub asked: Cell<Option<Instant>>,
    /// Time until the lock was granted, or the wait ended without it.
    pub waited: Cell<Option<Duration>>,
    /// The token of the last dispatch.
    pub token: Cell<Option<FencingToken>>,
    /// The moment after which the last dispatch must not be started.
    pub not_after: Cell<Option<BootInstant>>,
    /// The lock validity had ended when the answer came.
    pub proof_lost: Cell<bool>,
    /// The answer is a replay of an earlier one.
    pub replayed: Cell<Option<ReplayExtent>>,
    /// The reason for which the request would have been refused, if the route did more than observe.
    pub observed: Cell<Option<RefusalReason>>,
    /// The upstream has refused the token as stale: nothing more is dispatched under this grant.
    pub retires: Cell<bool>,
    /// The answer does not report that the execution is over, although it came in full: see
    /// [`plan::InconclusiveStatuses`].
    pub unfinished: Cell<bool>,
    /// A proxy stands between gateway and guard, and was detected.
    pub hop_seen: Cell<bool>,
    /// Takes the interim answers of the upstream.
    pub interims: OnceCell<InformationalSender>,
    /// On a route that only observes: counts a request that may pass without a lock, until its answer is here.
    pub unlocked: RefCell<Option<Rc<RunningRequestGuard>>>,
    /// At a filter: the permission of the request, which ends when it must not be started any more.
    pub begun_by: RefCell<Option<Arc<dyn SendPermission>>>,
    /// At a filter: the word with which the service has refused a stale token.
    pub refused_by_service: Cell<Option<HeaderValue>>,
    /// At a filter: the clock that the answer shows.
    pub shown_clock: OnceCell<ClockHeader>,
    /// The gate of the connection of the last attempt.
    pub gate: RefCell<Option<Rc<WriteGate>>>,
    /// The address to which that connection leads.
    pub address: RefCell<Option<Arc<EndpointAddress>>>,
}

impl RequestContext {
    /// The request is being sent. The report about an earlier sending no longer counts.
    pub fn record_sent(&self, at: Instant, upstream: &Arc<str>) {
        self.sent.replace(Some((at, upstream.clone())));
        self.upstream.set(None);
    }
}
