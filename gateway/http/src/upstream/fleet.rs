//! The endpoints of each upstream, and which of them a request tries.

mod meet;

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use fencegate_policies::{
    pick::{self, Candidate},
    plan::{Plan, Tls, Upstream, UpstreamId},
};
use fencegate_process::{
    client_tls::BadTls,
    said::{self, Brief},
};
use smallvec::{SmallVec, smallvec};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    address::Addresses,
    endpoint::{Bell, Endpoint, State},
    metrics::{EndpointMetrics, Seen, Sight},
    tls::{Refreshed, Secured},
};
use crate::network::remote::Remote;

/// The upstreams of one plan, shared by all workers.
#[derive(Debug)]
pub struct Fleets {
    all: Vec<Arc<Fleet>>,
    bell: Bell,
    /// Ends what looks after the endpoints, when another plan takes over.
    over: CancellationToken,
    names: Names,
    metrics: EndpointMetrics,
}

/// What becomes of the names of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// They are looked up, for as long as this is in use.
    LookedUp,
    /// All that is known is what the file says.
    AsWritten,
}

/// The endpoints of one upstream.
#[derive(Debug)]
pub struct Fleet {
    pub upstream: Upstream,
    endpoints: Vec<Arc<Endpoint>>,
    /// `None` for plain text.
    pub secured: Option<Secured>,
    turn: AtomicUsize,
    /// Two endpoints that fail at the same moment must not both be taken out as the last but one.
    ejecting: Mutex<()>,
    pub metrics: EndpointMetrics,
}

impl Fleets {
    /// # Errors
    /// A file that TLS is to be spoken with cannot be used.
    pub fn of(plan: &Plan, metrics: &EndpointMetrics) -> Result<Arc<Self>, BadTls> {
        Self::made(plan, metrics, watch::Sender::new(()), Secured::open, None)
    }

    /// To be looked at only: no file is read, and nothing can be sent over TLS.
    pub fn to_look_at(plan: &Plan, metrics: &EndpointMetrics) -> Arc<Self> {
        let closed = |_: &Tls| Ok(Secured::closed());
        let mut fleets =
            Self::made(plan, metrics, watch::Sender::new(()), closed, None).expect("no file is read");
        if let Some(fleets) = Arc::get_mut(&mut fleets) {
            fleets.names = Names::AsWritten;
        }
        for endpoint in fleets.all.iter().flat_map(|fleet| &fleet.endpoints) {
            // Nor is a name looked up, and nobody should wait for it.
            endpoint.addresses.not_found();
        }
        fleets
    }

    /// For a plan that comes after: endpoints that are in both keep what is known of them.
    ///
    /// # Errors
    /// A file that TLS is to be spoken with cannot be used.
    pub fn after(&self, plan: &Plan, metrics: &EndpointMetrics) -> Result<Arc<Self>, BadTls> {
        Self::made(plan, metrics, self.bell.clone(), Secured::open, Some(self))
    }

    fn made(
        plan: &Plan,
        metrics: &EndpointMetrics,
        bell: Bell,
        open: impl Fn(&Tls) -> Result<Secured, BadTls>,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, BadTls> {
        let fleet = |upstream: &Upstream| {
            let before = before.and_then(|before| before.named(&upstream.name));
            let made = |name: &Arc<str>| {
                let known = before.and_then(|before| before.known(upstream, name));
                known.unwrap_or_else(|| {
                    let addresses = before.and_then(|before| before.addresses(name));
                    let addresses = addresses.unwrap_or_else(|| Arc::new(Addresses::of(name.clone())));
                    let limits = upstream.sharing.pool.clone();
                    Arc::new(Endpoint::new(name.clone(), addresses, limits, bell.clone()))
                })
            };
            Ok::<_, BadTls>(Arc::new(Fleet {
                secured: upstream.tls.as_ref().map(&open).transpose()?,
                upstream: upstream.clone(),
                endpoints: upstream.endpoints.iter().map(made).collect(),
                turn: AtomicUsize::new(0),
                ejecting: Mutex::default(),
                metrics: metrics.clone(),
            }))
        };
        let all = plan.upstreams.iter().map(fleet).collect::<Result<_, _>>()?;
        let fleets = Arc::new(Self {
            all,
            bell: bell.clone(),
            over: CancellationToken::new(),
            names: Names::LookedUp,
            metrics: metrics.clone(),
        });
        Ok(fleets)
    }

    /// From now on these are the endpoints that are told of.
    pub(super) fn are_shown(self: &Arc<Self>) {
        let shown: Weak<Self> = Arc::downgrade(self);
        self.metrics.show(shown);
    }

    /// Of the plan that this was made for.
    pub fn fleet(&self, id: UpstreamId) -> &Arc<Fleet> {
        &self.all[id.0]
    }

    fn named(&self, upstream: &str) -> Option<&Arc<Fleet>> {
        self.all.iter().find(|fleet| *fleet.upstream.name == *upstream)
    }

    pub fn all(&self) -> &[Arc<Fleet>] {
        &self.all
    }

    pub fn bell(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Another plan has taken over.
    pub fn retire(&self) {
        self.over.cancel();
    }

    pub fn over(&self) -> &CancellationToken {
        &self.over
    }
}

impl Seen for Fleets {
    fn look(&self, see: &mut dyn FnMut(Sight<'_>)) {
        for fleet in &self.all {
            let states = fleet.endpoints.iter().map(|endpoint| endpoint.state()).collect();
            let connections = fleet.endpoints.iter().map(|endpoint| endpoint.connections()).sum();
            see(Sight { upstream: &fleet.upstream.name, states, connections });
        }
    }
}

impl Fleet {
    /// The endpoint of this name, if it is one under a new plan, too.
    fn known(&self, new: &Upstream, name: &Arc<str>) -> Option<Arc<Endpoint>> {
        // What lies idle was made as that plan said.
        let old = &self.upstream;
        if (&old.tls, old.protocol, old.fencing) != (&new.tls, new.protocol, new.fencing) {
            return None;
        }
        let same = |one: &&Arc<Endpoint>| one.name == *name && one.has(&new.sharing.pool);
        self.endpoints.iter().find(same).cloned()
    }

    /// Where a name leads does not depend on how one speaks there.
    fn addresses(&self, name: &Arc<str>) -> Option<Arc<Addresses>> {
        let same = self.endpoints.iter().find(|one| one.name == *name)?;
        Some(same.addresses.clone())
    }

    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// It leads to one place for ever, and no name server says where that is.
    pub(super) fn is_one_address(&self) -> bool {
        matches!(&self.endpoints[..], [one] if one.addresses.is_literal())
    }

    /// Where a request goes. `key`: what [`pick::Balance::ByKey`] goes by.
    pub fn tour(self: &Arc<Self>, key: impl FnOnce() -> u64) -> Tour<'_> {
        let sharing = &self.upstream.sharing;
        if let [only] = &self.endpoints[..] {
            return Tour { fleet: self, stops: smallvec![only], at: 0, fresh: false };
        }
        let key = if sharing.balance == pick::Balance::ByKey { key() } else { 0 };
        let candidates: Vec<Candidate> = self.endpoints.iter().map(|endpoint| endpoint.candidate()).collect();
        let order = pick::order(sharing.balance, self.turn.fetch_add(1, Relaxed), key, &candidates);
        let most = sharing.retries.map_or(usize::MAX, |retries| retries.saturating_add(1));
        let stops = order.into_iter().take(most).map(|at| &self.endpoints[at]).collect();
        Tour { fleet: self, stops, at: 0, fresh: false }
    }

    /// Something has failed that is the endpoint's own fault.
    pub fn failed(&self, endpoint: &Endpoint) {
        let eject = &self.upstream.sharing.eject;
        if !endpoint.failed(eject) {
            return;
        }
        let _one_at_a_time = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |other: &&Arc<Endpoint>| other.state() == State::Usable;
        // A sick endpoint is better than none.
        if endpoint.state() != State::Usable || self.endpoints.iter().filter(usable).count() < 2 {
            return;
        }
        let lasts = endpoint.eject(eject);
        self.metrics.ejected(&self.upstream.name, &endpoint.name);
        warn!(upstream = %self.upstream.name, endpoint = %endpoint.name, lasts = %Brief(lasts), "endpoint.ejected");
    }

    /// Looks at the files that TLS is spoken with. It may block.
    pub fn refresh(&self) {
        let Some(secured) = &self.secured else { return };
        let upstream = &self.upstream.name;
        match secured.refresh() {
            Refreshed::Unchanged => {}
            Refreshed::TakenOver => {
                self.metrics.tls_files(upstream, true);
                info!(%upstream, "upstream.tls_files_taken_over");
            }
            Refreshed::Bad(bad) => {
                self.metrics.tls_files(upstream, false);
                let bad: &dyn std::error::Error = &bad;
                warn!(%upstream, bad, "upstream.tls_files_bad: the old ones stay in use");
            }
        }
    }

    /// What a lookup of the endpoint's name has found; `None`: nothing, or not in time.
    pub fn looked_up(&self, endpoint: &Endpoint, found: Option<Vec<Remote>>) {
        let (upstream, name) = (&self.upstream.name, &endpoint.name);
        self.metrics.looked_up(upstream, found.is_some());
        match found {
            Some(sockets) => {
                if endpoint.addresses.found(sockets.clone()) {
                    info!(%upstream, endpoint = %name, sockets = said::all(&sockets), "endpoint.addresses");
                }
            }
            None => {
                if endpoint.addresses.not_found() {
                    warn!(%upstream, endpoint = %name, "endpoint.not_found: what was known before stays in use");
                }
            }
        }
    }

    /// What the active checks say of it.
    pub fn checked(&self, endpoint: &Endpoint, well: bool) {
        if endpoint.is_well(well) {
            let state = if well { State::Usable } else { State::Unhealthy };
            let (upstream, endpoint) = (&self.upstream.name, &endpoint.name);
            info!(%upstream, %endpoint, state = state.word(), "endpoint.checked");
        }
    }
}

/// One request's way through the endpoints: each at most once, and once more where a pooled connection had died.
#[derive(Debug)]
pub struct Tour<'f> {
    pub fleet: &'f Arc<Fleet>,
    stops: SmallVec<[&'f Arc<Endpoint>; 4]>,
    at: usize,
    /// No idle connection: after a dead one the others are likely to be dead, too.
    pub fresh: bool,
}

impl<'f> Tour<'f> {
    /// Where the request may go now; `None` when it has been everywhere.
    pub fn stop(&self) -> Option<&'f Arc<Endpoint>> {
        self.stops.get(self.at).copied()
    }

    /// Nothing could be sent there.
    pub fn pass(&mut self) {
        self.at += 1;
    }

    /// What is left is this one endpoint.
    pub fn settle_for(&mut self, endpoint: &Endpoint) {
        self.stops.retain(|stop| stop.id == endpoint.id);
        self.at = 0;
    }

    /// Nothing could be sent over the connection. `reused`: because it had died while it was idle, most likely.
    pub fn died(&mut self, reused: bool) {
        if reused && !self.fresh { self.fresh = true } else { self.pass() }
    }
}
