//! The endpoints of each upstream, and the order in which a request tries them.

mod overlap;

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use fencegate_http::network::ConnectTarget;
use fencegate_policies::{
    load_balance::{self, LbCandidate},
    plan::{ClientTls, CommonServingPlan, Upstream, UpstreamId},
};
use fencegate_process::{
    client_tls::TlsClientConfigError,
    display::{self, FormattedDuration},
};
use smallvec::{SmallVec, smallvec};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    address::EndpointAddresses,
    endpoint::{Endpoint, EndpointState, IdleEvictionTrigger},
    metrics::{EndpointMetrics, EndpointMetricsSource, EndpointSetSnapshot},
    tls::{TlsReloadResult, UpstreamTlsConnector},
};

/// The upstreams of one plan, shared by all workers.
#[derive(Debug)]
pub struct UpstreamSet {
    all: Vec<Arc<EndpointSet>>,
    /// The number of plans that came before this one.
    plan: u64,
    wait_notifier: IdleEvictionTrigger,
    /// Ends the tasks of the endpoints when another plan takes over.
    retired: CancellationToken,
    names: NameResolutionMode,
    metrics: EndpointMetrics,
}

/// Tells whether the names of endpoints are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameResolutionMode {
    /// Names are looked up periodically.
    Dns,
    /// Names are never looked up, because nothing is sent.
    Literal,
}

/// The endpoints of one upstream.
#[derive(Debug)]
pub struct EndpointSet {
    pub upstream: Upstream,
    /// The number of plans that came before the plan of this set.
    plan: u64,
    endpoints: Vec<Arc<Endpoint>>,
    /// `None` for plain text.
    pub tls: Option<UpstreamTlsConnector>,
    turn: AtomicUsize,
    /// Held during an ejection: if the last two endpoints fail at the same moment, only one of them may be ejected.
    ejecting: Mutex<()>,
    pub metrics: EndpointMetrics,
    /// True if a response has shown that an intermediary stands before the service.
    intermediary: AtomicBool,
}

impl UpstreamSet {
    /// # Errors
    /// Returns an error if a file for TLS cannot be used.
    pub fn new(
        plan: &CommonServingPlan,
        metrics: &EndpointMetrics,
    ) -> Result<Arc<Self>, TlsClientConfigError> {
        Self::build(plan, metrics, watch::Sender::new(()), UpstreamTlsConnector::open, None)
    }

    /// Makes a set for display only: no file is read, and nothing can be sent over TLS.
    pub fn for_display(plan: &CommonServingPlan, metrics: &EndpointMetrics) -> Arc<Self> {
        let closed = |_: &ClientTls| Ok(UpstreamTlsConnector::trusting_none());
        let mut upstreams =
            Self::build(plan, metrics, watch::Sender::new(()), closed, None).expect("no file is read");
        if let Some(upstreams) = Arc::get_mut(&mut upstreams) {
            upstreams.names = NameResolutionMode::Literal;
        }
        for endpoint in upstreams.all.iter().flat_map(|endpoint_set| &endpoint_set.endpoints) {
            // In this set no name is looked up, so the lookups are marked as over: nothing may wait for one.
            endpoint.addresses.record_failed_lookup();
        }
        upstreams
    }

    /// Makes the endpoint sets of the next plan. Endpoints that are in both plans keep their state.
    ///
    /// # Errors
    /// Returns an error if a file for TLS cannot be used.
    pub fn for_next_plan(
        &self,
        plan: &CommonServingPlan,
        metrics: &EndpointMetrics,
    ) -> Result<Arc<Self>, TlsClientConfigError> {
        Self::build(plan, metrics, self.wait_notifier.clone(), UpstreamTlsConnector::open, Some(self))
    }

    fn build(
        plan: &CommonServingPlan,
        metrics: &EndpointMetrics,
        bell: IdleEvictionTrigger,
        open: impl Fn(&ClientTls) -> Result<UpstreamTlsConnector, TlsClientConfigError>,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, TlsClientConfigError> {
        let number = before.map_or(0, |before| before.plan + 1);
        let new_set = |upstream: &Upstream| {
            let before = before.and_then(|before| before.find(&upstream.name));
            let made = |name: &Arc<str>| {
                let known = before.and_then(|before| before.find_endpoint(upstream, name));
                known.unwrap_or_else(|| {
                    let addresses = before.and_then(|before| before.addresses(name));
                    let addresses =
                        addresses.unwrap_or_else(|| Arc::new(EndpointAddresses::new(name.clone())));
                    let limits = upstream.sharing.pool.clone();
                    Arc::new(Endpoint::new(name.clone(), addresses, limits, bell.clone()))
                })
            };
            Ok::<_, TlsClientConfigError>(Arc::new(EndpointSet {
                tls: upstream.tls.as_ref().map(&open).transpose()?,
                upstream: upstream.clone(),
                plan: number,
                endpoints: upstream.endpoints.iter().map(made).collect(),
                turn: AtomicUsize::new(0),
                ejecting: Mutex::default(),
                metrics: metrics.clone(),
                intermediary: AtomicBool::new(before.is_some_and(|before| before.intermediary.load(Relaxed))),
            }))
        };
        let all = plan.upstreams.iter().map(new_set).collect::<Result<_, _>>()?;
        let upstreams = Arc::new(Self {
            all,
            plan: number,
            wait_notifier: bell.clone(),
            retired: CancellationToken::new(),
            names: NameResolutionMode::Dns,
            metrics: metrics.clone(),
        });
        Ok(upstreams)
    }

    /// Makes the metrics show these endpoints.
    pub(super) fn publish_metrics(self: &Arc<Self>) {
        let shown: Weak<Self> = Arc::downgrade(self);
        self.metrics.set_source(shown);
    }

    /// The endpoint set of an upstream. `id` must be from the plan for which this set was made.
    pub fn get(&self, id: UpstreamId) -> &Arc<EndpointSet> {
        &self.all[id.0]
    }

    fn find(&self, upstream: &str) -> Option<&Arc<EndpointSet>> {
        self.all.iter().find(|endpoint_set| *endpoint_set.upstream.name == *upstream)
    }

    pub fn all(&self) -> &[Arc<EndpointSet>] {
        &self.all
    }

    pub fn subscribe_to_waits(&self) -> watch::Receiver<()> {
        self.wait_notifier.subscribe()
    }

    /// Ends the tasks of the endpoints, because another plan has taken over.
    pub fn stop_endpoint_tasks(&self) {
        self.retired.cancel();
    }

    pub fn retirement_token(&self) -> &CancellationToken {
        &self.retired
    }
}

impl EndpointMetricsSource for UpstreamSet {
    fn visit(&self, see: &mut dyn FnMut(EndpointSetSnapshot<'_>)) {
        for endpoint_set in &self.all {
            let states = endpoint_set.endpoints.iter().map(|endpoint| endpoint.state()).collect();
            let connections = endpoint_set.endpoints.iter().map(|endpoint| endpoint.connections()).sum();
            see(EndpointSetSnapshot { upstream: &endpoint_set.upstream.name, states, connections });
        }
    }
}

impl EndpointSet {
    /// Finds the endpoint with this name, if the new plan uses it with the same settings.
    fn find_endpoint(&self, new: &Upstream, name: &Arc<str>) -> Option<Arc<Endpoint>> {
        // Idle connections were made with the settings of the old plan, so these settings have to be equal.
        let old = &self.upstream;
        if (&old.tls, old.protocol, old.fencing) != (&new.tls, new.protocol, new.fencing) {
            return None;
        }
        let same = |one: &&Arc<Endpoint>| one.name == *name && one.has_limits(&new.sharing.pool);
        self.endpoints.iter().find(same).cloned()
    }

    /// The addresses behind a name. They are kept even if other settings of the upstream change.
    fn addresses(&self, name: &Arc<str>) -> Option<Arc<EndpointAddresses>> {
        let same = self.endpoints.iter().find(|one| one.name == *name)?;
        Some(same.addresses.clone())
    }

    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// True if there is one endpoint and its name is an address, so that the address never changes.
    pub(super) fn is_one_address(&self) -> bool {
        matches!(&self.endpoints[..], [one] if one.addresses.is_literal())
    }

    /// True if requests can go to another endpoint than `than`.
    pub(super) fn has_other_usable_endpoint(&self, than: &Endpoint) -> bool {
        self.endpoints.iter().any(|other| other.id != than.id && other.state() == EndpointState::Usable)
    }

    /// Records that a response shows an intermediary before the service. Returns true only the first time; a reload
    /// does not reset this.
    pub fn note_intermediary(&self) -> bool {
        !self.intermediary.load(Relaxed) && !self.intermediary.swap(true, Relaxed)
    }

    /// Returns the order in which a request tries the endpoints. `key` makes the hash for
    /// [`load_balance::LbPolicy::ByKey`].
    pub fn cursor(self: &Arc<Self>, key: impl FnOnce() -> u64) -> EndpointCursor<'_> {
        let sharing = &self.upstream.sharing;
        if let [only] = &self.endpoints[..] {
            return EndpointCursor { fleet: self, endpoints: smallvec![only], position: 0, fresh: false };
        }
        let key = if sharing.balance == load_balance::LbPolicy::ByKey { key() } else { 0 };
        let candidates: Vec<LbCandidate> =
            self.endpoints.iter().map(|endpoint| endpoint.candidate()).collect();
        let order =
            load_balance::candidate_order(sharing.balance, self.turn.fetch_add(1, Relaxed), key, &candidates);
        let most = sharing.retries.map_or(usize::MAX, |retries| retries.saturating_add(1));
        let stops = order.into_iter().take(most).map(|at| &self.endpoints[at]).collect();
        EndpointCursor { fleet: self, endpoints: stops, position: 0, fresh: false }
    }

    /// Records that an exchange has failed because of the endpoint, and ejects the endpoint if it has failed too often.
    pub fn record_failure(&self, endpoint: &Endpoint) {
        let eject = &self.upstream.sharing.eject;
        if !endpoint.record_failure(eject) {
            return;
        }
        let _one_at_a_time = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |other: &&Arc<Endpoint>| other.state() == EndpointState::Usable;
        // The last usable endpoint is never ejected: a failing endpoint is better than none.
        if endpoint.state() != EndpointState::Usable || self.endpoints.iter().filter(usable).count() < 2 {
            return;
        }
        let lasts = endpoint.eject(eject);
        self.metrics.record_ejection(&self.upstream.name, &endpoint.name);
        warn!(upstream = %self.upstream.name, endpoint = %endpoint.name, lasts = %FormattedDuration(lasts), "endpoint.ejected");
    }

    /// Checks whether the TLS files have changed. It may block.
    pub(crate) fn reload_tls(&self) {
        let Some(secured) = &self.tls else { return };
        let upstream = &self.upstream.name;
        match secured.reload_if_changed() {
            TlsReloadResult::Unchanged => {}
            TlsReloadResult::TakenOver => {
                self.metrics.record_tls_reload(upstream, true);
                info!(%upstream, "upstream.tls_files_taken_over");
            }
            TlsReloadResult::Bad(bad) => {
                self.metrics.record_tls_reload(upstream, false);
                let bad: &dyn std::error::Error = &bad;
                warn!(%upstream, bad, "upstream.tls_files_bad: the old ones stay in use");
            }
        }
    }

    /// Applies the result of a lookup; `None` if no address was found in time.
    pub(crate) fn record_lookup(&self, endpoint: &Endpoint, found: Option<Vec<ConnectTarget>>) {
        let upstream = &self.upstream.name;
        let name = &endpoint.name;
        self.metrics.record_dns_lookup(upstream, found.is_some());
        match found {
            Some(sockets) => {
                if endpoint.addresses.update(sockets.clone()) {
                    info!(%upstream, endpoint = %name, sockets = display::join_display(&sockets), "endpoint.addresses");
                }
            }
            None => {
                if endpoint.addresses.record_failed_lookup() {
                    warn!(%upstream, endpoint = %name, "endpoint.not_found: what was known before stays in use");
                }
            }
        }
    }

    /// Marks these endpoints as healthy, because the plan has no checks that could report their state.
    pub(super) fn mark_all_healthy(&self) {
        for endpoint in &self.endpoints {
            endpoint.set_check_result(self.plan, true);
        }
    }

    /// Applies the result of an active check. The result is ignored if a later plan has taken the endpoint over.
    pub(crate) fn record_check(&self, endpoint: &Endpoint, well: bool) {
        if endpoint.set_check_result(self.plan, well) {
            let state = if well { EndpointState::Usable } else { EndpointState::Unhealthy };
            let upstream = &self.upstream.name;
            let endpoint = &endpoint.name;
            info!(%upstream, %endpoint, state = state.as_str(), "endpoint.checked");
        }
    }
}

/// The endpoints that one request tries: each at most once, and once more if a pooled connection was dead.
#[derive(Debug)]
pub struct EndpointCursor<'f> {
    pub fleet: &'f Arc<EndpointSet>,
    endpoints: SmallVec<[&'f Arc<Endpoint>; 4]>,
    position: usize,
    /// True if no idle connection may be used: after a dead one the others are probably dead, too.
    pub fresh: bool,
}

impl<'f> EndpointCursor<'f> {
    /// The endpoint to try now; `None` when all endpoints were tried.
    pub fn current(&self) -> Option<&'f Arc<Endpoint>> {
        self.endpoints.get(self.position).copied()
    }

    /// Goes on to the next endpoint, because nothing could be sent to the current one.
    pub fn advance(&mut self) {
        self.position += 1;
    }

    /// Limits the request to this endpoint.
    pub fn pin_to(&mut self, endpoint: &Endpoint) {
        self.endpoints.retain(|stop| stop.id == endpoint.id);
        self.position = 0;
    }

    /// Records that nothing could be sent over a connection. `reused` is true if it was an idle one, which has most
    /// likely been closed while it was idle; then the same endpoint is tried again.
    pub fn record_dead_connection(&mut self, reused: bool) {
        if reused && !self.fresh { self.fresh = true } else { self.advance() }
    }

    /// Records that the endpoint has said that it has processed nothing of the request. The next endpoint is tried; if
    /// there is none, the same one is tried again over a new connection, because it may have ended only the old one.
    pub fn advance_after_unprocessed(&mut self) {
        self.fresh = true;
        if self.position + 1 < self.endpoints.len() {
            self.advance();
        }
    }
}
