//! Finds the upstreams of two plans that may be one service. Two upstreams count as one unless they are known to
//! differ.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use fencegate_policies::plan::{CanonicalAddress, CommonServingPlan, Route, RouteId, Upstream};

use super::key_generation::{KeyRulesDrainGate, dedup_generations};

/// The identity of a service: the name and the endpoints of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpstreamNameAndEndpoints {
    name: Arc<str>,
    endpoints: Vec<CanonicalAddress>,
}

/// An upstream, and the present key generation of its service.
#[derive(Debug, Clone)]
pub(super) struct UpstreamKeyRulesGate {
    location: UpstreamNameAndEndpoints,
    pub(super) generation: Arc<KeyRulesDrainGate>,
}

/// Upstreams that may be one service.
#[derive(Default)]
pub(super) struct ServiceGroupChange<'e> {
    pub(super) before: Vec<&'e UpstreamKeyRulesGate>,
    /// The upstreams of the new plan, each with its index.
    pub(super) after: Vec<(usize, UpstreamNameAndEndpoints)>,
    pub(super) keys: KeyRulesChange,
}

/// The way in which another plan changes the locks of requests to a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum KeyRulesChange {
    #[default]
    Same,
    /// Each route fences the same requests as before, with another lock.
    Change,
    /// Some request moves to another fenced route, or loses its fence, or gets one.
    Moved,
}

impl UpstreamNameAndEndpoints {
    pub(super) fn with_generation(self, term: Arc<KeyRulesDrainGate>) -> UpstreamKeyRulesGate {
        UpstreamKeyRulesGate { location: self, generation: term }
    }
}

impl ServiceGroupChange<'_> {
    /// Former upstreams with a name or an endpoint that no upstream of the new plan has.
    pub(super) fn removed_upstreams(&self) -> Vec<UpstreamNameAndEndpoints> {
        let mut names = HashSet::new();
        let mut endpoints = HashSet::new();
        let mut adds = |place: &UpstreamNameAndEndpoints| {
            let name = names.insert(place.name.clone());
            place.endpoints.iter().fold(name, |adds, spot| endpoints.insert(spot.clone()) | adds)
        };
        for (_, place) in &self.after {
            adds(place);
        }
        self.before.iter().map(|known| &known.location).filter(|place| adds(place)).cloned().collect()
    }

    /// The key generations of the group, without duplicates.
    pub(super) fn generations(&self) -> Vec<Arc<KeyRulesDrainGate>> {
        dedup_generations(self.before.iter().map(|known| known.generation.clone()))
    }
}

/// The identities of the upstreams of a plan, in the order of the plan.
pub(super) fn upstream_identities(
    plan: &CommonServingPlan,
) -> impl Iterator<Item = UpstreamNameAndEndpoints> {
    // Two spellings of an address give equal values of `CanonicalAddress`: `localhost:80` and `127.0.0.1:80` are one
    // service.
    let spots =
        |of: &Upstream| of.endpoints.iter().map(|endpoint| CanonicalAddress::parse(endpoint)).collect();
    plan.upstreams
        .iter()
        .map(move |of| UpstreamNameAndEndpoints { name: of.name.clone(), endpoints: spots(of) })
}

/// Groups the upstreams that are still known and those of `plan`. Two are in one group if they share a name, an
/// endpoint or a key generation, or if a request may have moved from one to the other.
pub(super) fn group_services<'e>(
    old: &CommonServingPlan,
    before: Vec<&'e UpstreamKeyRulesGate>,
    plan: &CommonServingPlan,
    rekeyed: &[String],
) -> Vec<ServiceGroupChange<'e>> {
    let after: Vec<UpstreamNameAndEndpoints> = upstream_identities(plan).collect();
    let begin = before.len();
    let mut kin = DisjointSet::new(begin + after.len());
    let mut names = HashMap::new();
    let mut endpoints = HashMap::new();
    for (at, place) in before.iter().map(|known| &known.location).chain(&after).enumerate() {
        kin.merge(at, *names.entry(&place.name).or_insert(at));
        for endpoint in &place.endpoints {
            kin.merge(at, *endpoints.entry(endpoint).or_insert(at));
        }
    }
    let mut terms = HashMap::new();
    for (at, known) in before.iter().enumerate() {
        kin.merge(at, *terms.entry(Arc::as_ptr(&known.generation)).or_insert(at));
    }
    // A request of a rekeyed route may now belong to another rekeyed route, with another key. Only the request itself
    // shows to which one, so the upstreams of all these routes are one group.
    let touched: Vec<usize> = affected_upstreams(old, rekeyed)
        .chain(affected_upstreams(plan, rekeyed).map(|at| begin + at))
        .collect();
    touched.windows(2).for_each(|two| kin.merge(two[0], two[1]));

    let mut groups: HashMap<usize, ServiceGroupChange> = HashMap::new();
    for (at, known) in before.into_iter().enumerate() {
        groups.entry(kin.find_root(at)).or_default().before.push(known);
    }
    for (number, place) in after.into_iter().enumerate() {
        groups.entry(kin.find_root(begin + number)).or_default().after.push((number, place));
    }
    if let Some(at) = touched.first() {
        groups.entry(kin.find_root(*at)).or_default().keys = key_change(old, plan, rekeyed);
    }
    groups.into_values().collect()
}

/// Returns how the locks of the `rekeyed` routes change.
fn key_change(before: &CommonServingPlan, after: &CommonServingPlan, rekeyed: &[String]) -> KeyRulesChange {
    let rekeyed: HashSet<&str> = rekeyed.iter().map(String::as_str).collect();
    let takes = |plan: &CommonServingPlan| -> HashMap<Arc<str>, _> {
        // Unfenced routes are left out, because they have no key generation. A route that loses or gets its fence then
        // differs.
        let fenced = plan.routes.routes().iter().filter(|route| route.fence.is_some());
        let routes = fenced.filter(|route| rekeyed.contains(&*route.name));
        let takes = |route: &Route| (route.methods.clone(), route.path.clone(), route.conditions.clone());
        let leads = |route: &Route| plan.upstream(route.upstream).name.clone();
        routes.map(|route| (route.name.clone(), (takes(route), leads(route)))).collect()
    };
    if takes(before) == takes(after) { KeyRulesChange::Change } else { KeyRulesChange::Moved }
}

/// The upstreams of the `rekeyed` routes.
fn affected_upstreams(plan: &CommonServingPlan, rekeyed: &[String]) -> impl Iterator<Item = usize> {
    // A plan may have ten thousand routes, so the names are looked up in a set.
    let rekeyed: HashSet<&str> = rekeyed.iter().map(String::as_str).collect();
    let routes = (0..plan.routes.routes().len()).map(RouteId).map(|id| plan.routes.get(id));
    let led = routes.filter(|route| rekeyed.contains(&*route.name)).map(|route| route.upstream.0);
    led.collect::<HashSet<usize>>().into_iter()
}

/// Disjoint sets that are merged (union-find); one member represents each set.
struct DisjointSet(Vec<usize>);

impl DisjointSet {
    fn new(members: usize) -> Self {
        Self((0..members).collect())
    }

    fn find_root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn merge(&mut self, one: usize, other: usize) {
        let one = self.find_root(one);
        let other = self.find_root(other);
        self.0[one.max(other)] = one.min(other);
    }
}
