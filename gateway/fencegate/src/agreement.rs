//! Says which routes each session may serve, and which keys it may lease: those that no gateway which was there before locks
//! otherwise.
//!
//! The sessions publish the fenced routes of the plan and its patterns of leases, and look at what the others have published; here both are compared. Of two
//! sessions that disagree about a route the younger one refuses it, until the other has gone or agrees.

mod fleet_report;
mod standing_leases;
mod tell;

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

use fencegate_lock::session::publication::{
    PeerPlan, PeerSession, PlanEvaluator, PlanPublication, PublishOrder,
};
use fencegate_policies::{
    key::ResourceKey,
    plan::{GatewayPlan, MixedPlans, Plan, RouteId},
    published::{FencedRoute, PlanDigest, RouteIdentity},
    unlike::{ConflictReport, unlike},
};
use smallvec::SmallVec;
use tokio::sync::watch;

pub use self::fleet_report::{FleetReport, RouteAgreement, compared};
use self::standing_leases::ActiveLeases;
use crate::metrics::Metrics;

/// What the sessions of a gateway have learned about other gateways.
pub struct PlanCompat {
    state: RwLock<State>,
    /// Grows before each possible change of the state.
    version: AtomicU64,
    /// Signals each news.
    told: watch::Sender<()>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    mixed: MixedPlans,
    leases: ActiveLeases,
    marks: HashMap<FencedRoute, RouteIndex>,
    sessions: HashMap<i64, SessionVerdict>,
    /// By the fingerprint of the published plan.
    plans: HashMap<String, ParsedPlan>,
    /// By two fingerprints: the routes of the first plan that the second plan locks in another way.
    compared: HashMap<(String, String), Arc<[usize]>>,
    /// The refused routes in the last report, with the gateways that cause the refusal.
    said: BTreeMap<String, BTreeSet<String>>,
}

/// Stands for a published route. Equal routes have equal marks, also in two plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RouteIndex(usize);

/// A published plan that could be read.
#[derive(Clone)]
struct ParsedPlan {
    plan: Arc<PlanDigest>,
    /// Its routes, and what stands for its patterns of leases.
    entries: Arc<[FencedRoute]>,
    /// The marks of the entries, in the same order.
    marks: Arc<[RouteIndex]>,
}

/// The verdict about one session.
struct SessionVerdict {
    /// The routes that the session has published and will keep published.
    published: Arc<HashSet<RouteIndex>>,
    /// For each refused route, the gateways that cause the refusal.
    because: HashMap<RouteIndex, BTreeSet<String>>,
}

/// The verdicts about the routes of one plan.
#[derive(Clone)]
pub struct RouteVerdicts {
    agreement: Arc<PlanCompat>,
    /// Of each route, where it fences.
    marks: Arc<[Option<RouteIndex>]>,
    /// The last verdict about each route, so that a request needs no lock that workers share.
    seen: RefCell<Vec<CachedVerdict>>,
}

/// The sessions that a route was agreed for, at one version of the state.
#[derive(Clone, Default)]
struct CachedVerdict {
    version: u64,
    sessions: SmallVec<[i64; 4]>,
}

/// Whether requests of a route may take their locks by one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteStatus {
    Compatible,
    /// These older gateways lock the route in another way.
    Incompatible(String),
    /// The session has not published the route yet.
    Unknown,
}

/// Plans and comparisons that are remembered, before all are forgotten.
const MOST_KNOWN: usize = 64;

impl PlanCompat {
    pub fn of(gateway: &GatewayPlan, metrics: Arc<Metrics>) -> Arc<Self> {
        let leases = ActiveLeases::by(&PlanDigest::of(&gateway.serving, gateway.leases.as_ref()), Vec::new());
        let state = RwLock::new(State { mixed: gateway.mixed, leases, ..State::default() });
        Arc::new(Self { state, version: AtomicU64::new(1), told: watch::Sender::default(), metrics })
    }

    /// Hears of everything that is told from now on.
    pub fn hears(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }

    /// Whether this session may take locks of this route, for callers without an [`Accord`].
    pub fn standing(&self, session: i64, route: &FencedRoute) -> RouteStatus {
        let state = self.read();
        if state.mixed != MixedPlans::Refuse {
            return RouteStatus::Compatible;
        }
        let Some(mark) = state.marks.get(route) else { return RouteStatus::Unknown };
        state.standing(session, *mark)
    }

    /// The part of a plan that its sessions publish.
    pub fn publication(gateway: &GatewayPlan) -> PlanPublication {
        PlanPublication::of(PlanDigest::of(&gateway.serving, gateway.leases.as_ref()).to_bytes())
    }

    /// Another plan is in force.
    pub fn turn_to(&self, gateway: &GatewayPlan) {
        self.write().mixed = gateway.mixed;
        self.told.send_replace(());
    }

    /// From now on leases are granted by `plan`, and clients hold these keys by plans before it.
    pub fn leases(&self, plan: &PlanDigest, held: Vec<ResourceKey>) {
        self.write().leases = ActiveLeases::by(plan, held);
    }

    pub fn accord(self: &Arc<Self>, plan: &Plan) -> RouteVerdicts {
        let mut state = self.write();
        let marks = plan.routes.routes().iter().map(|route| {
            let fence = route.fence.as_ref()?;
            Some(state.mark(FencedRoute::of(route, fence, plan.upstream(route.upstream))))
        });
        let marks: Arc<[_]> = marks.collect();
        drop(state);
        let seen = RefCell::new(vec![CachedVerdict::default(); marks.len()]);
        RouteVerdicts { agreement: self.clone(), marks, seen }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        let state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Under the lock, and before the change: who has seen the new number waits for the lock, and sees the change.
        self.version.fetch_add(1, Release);
        state
    }

    /// Something was told of a session: the log and the metrics say so where it is news.
    fn tells(&self, mut state: RwLockWriteGuard<'_, State>) {
        let now = state.refused();
        self.metrics.refused_routes(now.len());
        if now != state.said {
            tell::log(&now, state.mixed);
            state.said = now;
        }
        drop(state);
        self.told.send_replace(());
    }
}

impl RouteVerdicts {
    pub fn standing(&self, session: i64, route: RouteId) -> RouteStatus {
        // Before the state: what changes meanwhile is looked at again.
        let version = self.agreement.version.load(Acquire);
        let seen = &mut self.seen.borrow_mut()[route.0];
        if seen.version == version && seen.sessions.contains(&session) {
            return RouteStatus::Compatible;
        }
        let standing = self.looked_up(session, route);
        if seen.version != version {
            *seen = CachedVerdict { version, ..CachedVerdict::default() };
        }
        if standing == RouteStatus::Compatible {
            seen.sessions.push(session);
        }
        standing
    }

    fn looked_up(&self, session: i64, route: RouteId) -> RouteStatus {
        let state = self.agreement.read();
        let Some(mark) = self.marks[route.0].filter(|_| state.mixed == MixedPlans::Refuse) else {
            return RouteStatus::Compatible;
        };
        state.standing(session, mark)
    }

    /// Hears of everything that is told from now on.
    pub fn hears(&self) -> watch::Receiver<()> {
        self.agreement.hears()
    }
}

impl PlanEvaluator for PlanCompat {
    fn judge(&self, session: i64, ours: &PlanPublication, others: &[PeerSession]) {
        let mut state = self.write();
        // We can read everything that we have written.
        let Some(known) = state.known(ours) else { return };
        let mut because: HashMap<RouteIndex, BTreeSet<String>> = HashMap::new();
        for other in others.iter().filter(|other| other.age != PublishOrder::Younger) {
            for at in state.unlike(ours, &known, other).iter() {
                because.entry(known.marks[*at]).or_default().insert(other.gateway.clone());
            }
        }
        let published = Arc::new(known.marks.iter().copied().collect());
        state.sessions.insert(session, SessionVerdict { published, because });
        self.tells(state);
    }

    fn turns(
        &self,
        session: i64,
        ours: &PlanPublication,
        next: &PlanPublication,
        others: &[PeerSession],
    ) -> Result<(), String> {
        let mut state = self.write();
        let (Some(now), Some(after)) = (state.known(ours), state.known(next)) else { return Ok(()) };
        if state.mixed == MixedPlans::Refuse {
            let essences: HashSet<RouteIdentity> = after.entries.iter().map(FencedRoute::essence).collect();
            let stays = |at: usize, leases: &ActiveLeases| {
                let pattern = at.checked_sub(now.plan.routes.len()).map(|at| &now.plan.leases[at]);
                essences.contains(&now.entries[at].essence())
                    && pattern.is_none_or(|pattern| leases.is_granted(pattern))
            };
            let mut compared = HashSet::new();
            for other in others.iter().filter(|other| other.age == PublishOrder::Younger) {
                let unlike = state.unlike(ours, &now, other);
                // What runs on the others was waited for; and what we refuse already we may go on refusing.
                let serves =
                    |at: &&usize| stays(**at, &state.leases) && state.serves(session, now.marks[**at]);
                if let Some(at) = unlike.iter().find(serves) {
                    let route = &now.entries[*at].name;
                    return Err(format!(
                        "{} locks route `{route}` otherwise, which is served here",
                        other.gateway
                    ));
                }
                let theirs = other.says.published().and_then(|theirs| state.known(theirs));
                let theirs = theirs.map(|theirs| theirs.plan);
                // The sessions of one gateway publish the same plan.
                if theirs.as_ref().is_some_and(|theirs| !compared.insert(Arc::as_ptr(theirs))) {
                    continue;
                }
                if let Some(why) = state.leases.is_locked_otherwise(&now.plan, other, theirs.as_deref()) {
                    return Err(why);
                }
            }
        }
        if let Some(verdict) = state.sessions.get_mut(&session) {
            let left = after.marks.iter().filter(|mark| verdict.published.contains(mark)).copied();
            verdict.published = Arc::new(left.collect());
        }
        drop(state);
        Ok(())
    }

    fn ended(&self, session: i64) {
        let mut state = self.write();
        state.sessions.remove(&session);
        self.tells(state);
    }
}

impl State {
    fn standing(&self, session: i64, mark: RouteIndex) -> RouteStatus {
        match self.sessions.get(&session).filter(|verdict| verdict.published.contains(&mark)) {
            None => RouteStatus::Unknown,
            Some(verdict) => match verdict.because.get(&mark) {
                None => RouteStatus::Compatible,
                Some(because) => RouteStatus::Incompatible(listed(because)),
            },
        }
    }

    fn mark(&mut self, route: FencedRoute) -> RouteIndex {
        let next = RouteIndex(self.marks.len());
        *self.marks.entry(route).or_insert(next)
    }

    /// `None` if this build cannot read it.
    fn known(&mut self, publication: &PlanPublication) -> Option<ParsedPlan> {
        if let Some(known) = self.plans.get(publication.fingerprint()) {
            return Some(known.clone());
        }
        let plan = Arc::new(PlanDigest::parse(publication.bytes()).ok()?);
        let entries: Arc<[FencedRoute]> = plan.entries().into();
        let marks = entries.iter().map(|entry| self.mark(entry.clone())).collect();
        if self.plans.len() >= MOST_KNOWN {
            self.plans.clear();
        }
        let known = ParsedPlan { plan, entries, marks };
        self.plans.insert(publication.fingerprint().to_owned(), known.clone());
        Some(known)
    }

    /// The indices of our entries that `other` locks in another way; all of them if that cannot be known.
    fn unlike(&mut self, ours: &PlanPublication, plan: &ParsedPlan, other: &PeerSession) -> Arc<[usize]> {
        let all = || (0..plan.entries.len()).collect();
        let PeerPlan::Published(theirs) = &other.says else { return all() };
        let pair = (ours.fingerprint().to_owned(), theirs.fingerprint().to_owned());
        if let Some(known) = self.compared.get(&pair) {
            return known.clone();
        }
        let found: Arc<[usize]> = match self.known(theirs) {
            Some(there) => {
                let ConflictReport { ours, unfinished } = unlike(&plan.plan, &there.plan);
                if unfinished {
                    tell::unfinished(&other.gateway);
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

    fn serves(&self, session: i64, route: RouteIndex) -> bool {
        let verdict = self.sessions.get(&session);
        verdict.is_some_and(|verdict| {
            verdict.published.contains(&route) && !verdict.because.contains_key(&route)
        })
    }

    /// The routes that some session refuses, by name, with the gateways that cause it.
    fn refused(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut because: HashMap<RouteIndex, BTreeSet<String>> = HashMap::new();
        for (mark, of) in self.sessions.values().flat_map(|verdict| &verdict.because) {
            because.entry(*mark).or_default().extend(of.iter().cloned());
        }
        if because.is_empty() {
            return BTreeMap::new();
        }
        let named = self
            .marks
            .iter()
            .filter_map(|(route, mark)| Some((route.name.clone(), because.get(mark)?.clone())));
        named.collect()
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for PlanCompat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Agreement")
    }
}

#[cfg(test)]
mod tests;
