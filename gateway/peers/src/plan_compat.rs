//! Decides which routes each session may serve, and which keys it may lease: those that no older gateway locks in
//! another way.
//!
//! Each session publishes the fenced routes of its plan and its lease patterns, and reads what the other sessions
//! have published; this module compares both. Of two sessions with an incompatible route the younger one refuses the
//! route, until the other session has ended or is compatible.

mod active_leases;
mod fleet_report;
mod log;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    sync::{
        Arc, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::{
    conflicts::{PlanConflictReport, find_conflicts},
    key::ResourceKey,
    plan::{CommonServingPlan, GatewayPlan, MixedPlanPolicy, RouteId},
    plan_digest::{PublishedFencedRoute, PublishedLockRules, RouteIdentity},
};
use fencegate_zookeeper::session::plan_publication::{
    PeerPlanPublication, PeerPlanPublicationOrder, PeerPlanStatus, PlanConflictHandler, PublishedPlanBytes,
};
use smallvec::SmallVec;
use tokio::sync::watch;

use self::active_leases::PlanSwitchLeaseCheck;
pub use self::fleet_report::{FleetPlanComparison, FleetRouteComparison, compare};

/// The published plans of other gateways, as the sessions of this gateway have read them, and the verdicts about its
/// routes.
pub struct PlanCompatRegistry {
    state: RwLock<PlanCompatState>,
    /// Incremented before each possible change of the state.
    version: AtomicU64,
    /// Signals each change.
    changed: watch::Sender<()>,
    metrics: Arc<AllMetricFamilies>,
}

#[derive(Default)]
struct PlanCompatState {
    mixed: MixedPlanPolicy,
    leases: PlanSwitchLeaseCheck,
    route_indices: HashMap<PublishedFencedRoute, PublishedRouteIndex>,
    sessions: HashMap<i64, SessionPlanVerdict>,
    /// The plans that were read, by fingerprint.
    plans: HashMap<String, ParsedPublishedPlan>,
    /// By the fingerprints of two plans: the routes of the first plan that the second plan locks in another way.
    compared: HashMap<(String, String), Arc<[usize]>>,
    /// The refused routes in the last report, with the gateways that cause the refusal.
    logged: BTreeMap<String, BTreeSet<String>>,
}

/// The index of a published route. Equal routes have equal indices, also if they are in two plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PublishedRouteIndex(usize);

/// A published plan that this build can read.
#[derive(Clone)]
struct ParsedPublishedPlan {
    plan: Arc<PublishedLockRules>,
    /// The routes of the plan, and then the entries for its lease patterns.
    entries: Arc<[PublishedFencedRoute]>,
    /// The indices of the entries, in the same order.
    indices: Arc<[PublishedRouteIndex]>,
}

/// The verdicts about the routes of one session.
struct SessionPlanVerdict {
    /// The routes that the session has published and will keep published.
    published: Arc<HashSet<PublishedRouteIndex>>,
    /// For each refused route, the gateways that cause the refusal.
    conflicts: HashMap<PublishedRouteIndex, BTreeSet<String>>,
}

/// The verdicts about the routes of one plan, cached for one worker.
#[derive(Clone)]
pub struct RouteCompatCache {
    compat: Arc<PlanCompatRegistry>,
    /// The index of each route that fences.
    indices: Arc<[Option<PublishedRouteIndex>]>,
    /// The last verdict about each route, so that a request needs no lock that workers share.
    cached: RefCell<Vec<CachedCompatibleSessions>>,
}

/// The sessions for which a route is compatible, at one version of the state.
#[derive(Clone, Default)]
struct CachedCompatibleSessions {
    version: u64,
    sessions: SmallVec<[i64; 4]>,
}

/// Tells whether requests of a route may take their locks through one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteCompatibility {
    Compatible,
    /// Older gateways, which are named here, lock the route in another way.
    Incompatible(String),
    /// The session has not published the route yet.
    Unknown,
}

/// The most plans, and the most comparisons, that are cached. When there are more, the cache is cleared.
const MOST_KNOWN: usize = 64;

impl PlanCompatRegistry {
    pub fn new(gateway: &GatewayPlan, metrics: Arc<AllMetricFamilies>) -> Arc<Self> {
        let leases = PlanSwitchLeaseCheck::new(
            &PublishedLockRules::from_plan(&gateway.serving, gateway.leases.as_ref()),
            Vec::new(),
        );
        let state =
            RwLock::new(PlanCompatState { mixed: gateway.mixed, leases, ..PlanCompatState::default() });
        Arc::new(Self { state, version: AtomicU64::new(1), changed: watch::Sender::default(), metrics })
    }

    /// Returns a receiver that is notified of every later change.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Tells whether this session may take locks of this route, for callers without a [`RouteCompatCache`].
    pub fn route_compatibility(&self, session: i64, route: &PublishedFencedRoute) -> RouteCompatibility {
        let state = self.read();
        if state.mixed != MixedPlanPolicy::Refuse {
            return RouteCompatibility::Compatible;
        }
        let Some(index) = state.route_indices.get(route) else { return RouteCompatibility::Unknown };
        state.route_compatibility(session, *index)
    }

    /// The part of a plan that the sessions of a gateway publish.
    pub fn publication(gateway: &GatewayPlan) -> PublishedPlanBytes {
        PublishedPlanBytes::from_bytes(
            PublishedLockRules::from_plan(&gateway.serving, gateway.leases.as_ref()).to_bytes(),
        )
    }

    /// Applies the setting `allow_mixed` of a plan that is in force now.
    pub fn apply_mixed_plan_policy(&self, gateway: &GatewayPlan) {
        self.write().mixed = gateway.mixed;
        self.changed.send_replace(());
    }

    /// Records that leases are granted by `plan` from now on, and that clients hold the keys `held` under earlier
    /// plans.
    pub fn set_leases(&self, plan: &PublishedLockRules, held: Vec<ResourceKey>) {
        self.write().leases = PlanSwitchLeaseCheck::new(plan, held);
    }

    pub fn route_compat_cache(self: &Arc<Self>, plan: &CommonServingPlan) -> RouteCompatCache {
        let mut state = self.write();
        let indices = plan.routes.routes().iter().map(|route| {
            let fence = route.fence.as_ref()?;
            Some(state.intern_route(PublishedFencedRoute::new(route, fence, plan.upstream(route.upstream))))
        });
        let indices: Arc<[_]> = indices.collect();
        drop(state);
        let seen = RefCell::new(vec![CachedCompatibleSessions::default(); indices.len()]);
        RouteCompatCache { compat: self.clone(), indices, cached: seen }
    }

    fn read(&self) -> RwLockReadGuard<'_, PlanCompatState> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, PlanCompatState> {
        let state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The version is incremented under the lock and before the change: a reader that sees the new version waits
        // for the lock, and then reads the change.
        self.version.fetch_add(1, Release);
        state
    }

    /// Logs the refused routes if they have changed, sets their metric, and notifies the subscribers.
    fn publish_refused_routes(&self, mut state: RwLockWriteGuard<'_, PlanCompatState>) {
        let now = state.refused_routes();
        self.metrics.set_refused_routes(now.len());
        if now != state.logged {
            log::log_refused(&now, state.mixed);
            state.logged = now;
        }
        drop(state);
        self.changed.send_replace(());
    }
}

impl RouteCompatCache {
    pub fn route_compatibility(&self, session: i64, route: RouteId) -> RouteCompatibility {
        // The version is read before the state: if the state changes between the two, the next call looks it up
        // again.
        let version = self.compat.version.load(Acquire);
        let seen = &mut self.cached.borrow_mut()[route.0];
        if seen.version == version && seen.sessions.contains(&session) {
            return RouteCompatibility::Compatible;
        }
        let standing = self.lookup(session, route);
        if seen.version != version {
            *seen = CachedCompatibleSessions { version, ..CachedCompatibleSessions::default() };
        }
        if standing == RouteCompatibility::Compatible {
            seen.sessions.push(session);
        }
        standing
    }

    fn lookup(&self, session: i64, route: RouteId) -> RouteCompatibility {
        let state = self.compat.read();
        let Some(index) = self.indices[route.0].filter(|_| state.mixed == MixedPlanPolicy::Refuse) else {
            return RouteCompatibility::Compatible;
        };
        state.route_compatibility(session, index)
    }

    /// Returns a receiver that is notified of every later change.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.compat.subscribe()
    }
}

impl PlanConflictHandler for PlanCompatRegistry {
    fn record_conflicting_plans(
        &self,
        session: i64,
        ours: &PublishedPlanBytes,
        others: &[PeerPlanPublication],
    ) {
        let mut state = self.write();
        // The plan can always be read, because this build has written it.
        let Some(known) = state.parse_plan(ours) else { return };
        let mut because: HashMap<PublishedRouteIndex, BTreeSet<String>> = HashMap::new();
        for other in others.iter().filter(|other| other.age != PeerPlanPublicationOrder::Younger) {
            for at in state.differing_routes(ours, &known, other).iter() {
                because.entry(known.indices[*at]).or_default().insert(other.gateway.clone());
            }
        }
        let published = Arc::new(known.indices.iter().copied().collect());
        state.sessions.insert(session, SessionPlanVerdict { published, conflicts: because });
        self.publish_refused_routes(state);
    }

    fn begin_plan_switch(
        &self,
        session: i64,
        ours: &PublishedPlanBytes,
        next: &PublishedPlanBytes,
        others: &[PeerPlanPublication],
    ) -> Result<(), String> {
        let mut state = self.write();
        let (Some(now), Some(after)) = (state.parse_plan(ours), state.parse_plan(next)) else {
            return Ok(());
        };
        if state.mixed == MixedPlanPolicy::Refuse {
            let essences: HashSet<RouteIdentity> =
                after.entries.iter().map(PublishedFencedRoute::identity).collect();
            let stays = |at: usize, leases: &PlanSwitchLeaseCheck| {
                let pattern = at.checked_sub(now.plan.routes.len()).map(|at| &now.plan.leases[at]);
                essences.contains(&now.entries[at].identity())
                    && pattern.is_none_or(|pattern| leases.is_lease_pattern_granted(pattern))
            };
            let mut compared = HashSet::new();
            for other in others.iter().filter(|other| other.age == PeerPlanPublicationOrder::Younger) {
                let unlike = state.differing_routes(ours, &now, other);
                // Only routes that stay and are served matter: requests of the other routes are over, and a route
                // that is refused already may stay refused.
                let serves =
                    |at: &&usize| stays(**at, &state.leases) && state.is_serving(session, now.indices[**at]);
                if let Some(at) = unlike.iter().find(serves) {
                    let route = &now.entries[*at].name;
                    return Err(format!(
                        "{} locks route `{route}` otherwise, which is served here",
                        other.gateway
                    ));
                }
                let theirs = other.says.publication().and_then(|theirs| state.parse_plan(theirs));
                let theirs = theirs.map(|theirs| theirs.plan);
                // The sessions of one gateway publish the same plan, which need not be compared twice.
                if theirs.as_ref().is_some_and(|theirs| !compared.insert(Arc::as_ptr(theirs))) {
                    continue;
                }
                if let Some(reason) =
                    state.leases.held_key_conflict_reason(&now.plan, other, theirs.as_deref())
                {
                    return Err(reason);
                }
            }
        }
        if let Some(verdict) = state.sessions.get_mut(&session) {
            let left = after.indices.iter().filter(|index| verdict.published.contains(index)).copied();
            verdict.published = Arc::new(left.collect());
        }
        drop(state);
        Ok(())
    }

    fn end_session(&self, session: i64) {
        let mut state = self.write();
        state.sessions.remove(&session);
        self.publish_refused_routes(state);
    }
}

impl PlanCompatState {
    fn route_compatibility(&self, session: i64, index: PublishedRouteIndex) -> RouteCompatibility {
        match self.sessions.get(&session).filter(|verdict| verdict.published.contains(&index)) {
            None => RouteCompatibility::Unknown,
            Some(verdict) => match verdict.conflicts.get(&index) {
                None => RouteCompatibility::Compatible,
                Some(because) => RouteCompatibility::Incompatible(join_names(because)),
            },
        }
    }

    fn intern_route(&mut self, route: PublishedFencedRoute) -> PublishedRouteIndex {
        let next = PublishedRouteIndex(self.route_indices.len());
        *self.route_indices.entry(route).or_insert(next)
    }

    /// Parses a published plan; `None` if this build cannot read it.
    fn parse_plan(&mut self, publication: &PublishedPlanBytes) -> Option<ParsedPublishedPlan> {
        if let Some(known) = self.plans.get(publication.fingerprint()) {
            return Some(known.clone());
        }
        let plan = Arc::new(PublishedLockRules::parse(publication.bytes()).ok()?);
        let entries: Arc<[PublishedFencedRoute]> = plan.entries().into();
        let indices = entries.iter().map(|entry| self.intern_route(entry.clone())).collect();
        if self.plans.len() >= MOST_KNOWN {
            self.plans.clear();
        }
        let known = ParsedPublishedPlan { plan, entries, indices };
        self.plans.insert(publication.fingerprint().to_owned(), known.clone());
        Some(known)
    }

    /// The indices of the entries in `plan` that `other` locks in another way; all of them if that cannot be
    /// determined.
    fn differing_routes(
        &mut self,
        ours: &PublishedPlanBytes,
        plan: &ParsedPublishedPlan,
        other: &PeerPlanPublication,
    ) -> Arc<[usize]> {
        let all = || (0..plan.entries.len()).collect();
        let PeerPlanStatus::Published(theirs) = &other.says else { return all() };
        let pair = (ours.fingerprint().to_owned(), theirs.fingerprint().to_owned());
        if let Some(known) = self.compared.get(&pair) {
            return known.clone();
        }
        let found: Arc<[usize]> = match self.parse_plan(theirs) {
            Some(there) => {
                let PlanConflictReport { ours, unfinished } = find_conflicts(&plan.plan, &there.plan);
                if unfinished {
                    log::log_incomplete_comparison(&other.gateway);
                }
                ours.into()
            }
            None => all(),
        };
        if self.compared.len() >= MOST_KNOWN {
            self.compared.clear();
        }
        self.compared.insert(pair, found.clone());
        found
    }

    fn is_serving(&self, session: i64, route: PublishedRouteIndex) -> bool {
        let verdict = self.sessions.get(&session);
        verdict.is_some_and(|verdict| {
            verdict.published.contains(&route) && !verdict.conflicts.contains_key(&route)
        })
    }

    /// The routes that are refused under at least one ZooKeeper session of this gateway, by name, with the gateways whose
    /// plans cause the refusal.
    fn refused_routes(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut because: HashMap<PublishedRouteIndex, BTreeSet<String>> = HashMap::new();
        for (index, of) in self.sessions.values().flat_map(|verdict| &verdict.conflicts) {
            because.entry(*index).or_default().extend(of.iter().cloned());
        }
        if because.is_empty() {
            return BTreeMap::new();
        }
        let named = self
            .route_indices
            .iter()
            .filter_map(|(route, index)| Some((route.name.clone(), because.get(index)?.clone())));
        named.collect()
    }
}

fn join_names(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for PlanCompatRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Agreement")
    }
}

#[cfg(test)]
mod tests;
