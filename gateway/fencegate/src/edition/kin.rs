//! Which upstreams of two plans may lead to one service: what is not known to be apart is taken for one.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use fencegate_policies::plan::{Plan, Route, RouteId, Spot, Upstream};

use super::term::{Term, distinct};

/// Where an upstream leads, as far as its name and its endpoints tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whereabouts {
    name: Arc<str>,
    endpoints: Vec<Spot>,
}

/// A place, and the term that its service is in.
#[derive(Debug, Clone)]
pub(super) struct Known {
    place: Whereabouts,
    pub(super) term: Arc<Term>,
}

/// What may be one service.
#[derive(Default)]
pub(super) struct Kindred<'e> {
    pub(super) before: Vec<&'e Known>,
    /// With their numbers in the new plan.
    pub(super) after: Vec<(usize, Whereabouts)>,
    pub(super) keys: KeyChange,
}

/// What another plan does to the locks that requests to a service take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum KeyChange {
    #[default]
    Stay,
    /// Each route fences the requests that it fenced, by another lock.
    Change,
    /// Some request is another fenced route's now, or of none, or was of none.
    Wander,
}

impl Whereabouts {
    pub(super) fn within(self, term: Arc<Term>) -> Known {
        Known { place: self, term }
    }
}

impl Kindred<'_> {
    /// The places of before by which anything of this group could be met, and is not now.
    pub(super) fn gone(&self) -> Vec<Whereabouts> {
        let (mut names, mut endpoints) = (HashSet::new(), HashSet::new());
        let mut adds = |place: &Whereabouts| {
            let name = names.insert(place.name.clone());
            place.endpoints.iter().fold(name, |adds, spot| endpoints.insert(spot.clone()) | adds)
        };
        for (_, place) in &self.after {
            adds(place);
        }
        self.before.iter().map(|known| &known.place).filter(|place| adds(place)).cloned().collect()
    }

    /// Each once.
    pub(super) fn terms(&self) -> Vec<Arc<Term>> {
        distinct(self.before.iter().map(|known| known.term.clone()))
    }
}

/// Those of a plan, by their numbers.
pub(super) fn upstreams(plan: &Plan) -> impl Iterator<Item = Whereabouts> {
    // However an endpoint is written: `localhost:80` and `127.0.0.1:80` lead to one service.
    let spots = |of: &Upstream| of.endpoints.iter().map(|endpoint| Spot::of(endpoint)).collect();
    plan.upstreams.iter().map(move |of| Whereabouts { name: of.name.clone(), endpoints: spots(of) })
}

/// All that is still known from before and all of `plan`, in groups. Two are in one if they share a name, an endpoint or a term, or may
/// have taken requests from one another.
pub(super) fn groups<'e>(
    (old, before): (&Plan, Vec<&'e Known>),
    plan: &Plan,
    rekeyed: &[String],
) -> Vec<Kindred<'e>> {
    let after: Vec<Whereabouts> = upstreams(plan).collect();
    let begin = before.len();
    let mut kin = Kin::of(begin + after.len());
    let (mut names, mut endpoints) = (HashMap::new(), HashMap::new());
    for (at, place) in before.iter().map(|known| &known.place).chain(&after).enumerate() {
        kin.join(at, *names.entry(&place.name).or_insert(at));
        for endpoint in &place.endpoints {
            kin.join(at, *endpoints.entry(endpoint).or_insert(at));
        }
    }
    let mut terms = HashMap::new();
    for (at, known) in before.iter().enumerate() {
        kin.join(at, *terms.entry(Arc::as_ptr(&known.term)).or_insert(at));
    }
    // A request that one of these took may be another's now, of another name: which, only the request could tell.
    let touched: Vec<usize> =
        touched(old, rekeyed).chain(touched(plan, rekeyed).map(|at| begin + at)).collect();
    touched.windows(2).for_each(|two| kin.join(two[0], two[1]));

    let mut groups: HashMap<usize, Kindred> = HashMap::new();
    for (at, known) in before.into_iter().enumerate() {
        groups.entry(kin.first(at)).or_default().before.push(known);
    }
    for (number, place) in after.into_iter().enumerate() {
        groups.entry(kin.first(begin + number)).or_default().after.push((number, place));
    }
    if let Some(at) = touched.first() {
        groups.entry(kin.first(*at)).or_default().keys = keys(old, plan, rekeyed);
    }
    groups.into_values().collect()
}

/// What becomes of these routes.
fn keys(before: &Plan, after: &Plan, rekeyed: &[String]) -> KeyChange {
    let rekeyed: HashSet<&str> = rekeyed.iter().map(String::as_str).collect();
    let takes = |plan: &Plan| -> HashMap<Arc<str>, _> {
        // One that does not fence has no terms: what it takes over from another, or leaves to it, shows nowhere else.
        let fenced = plan.routes.routes().iter().filter(|route| route.fence.is_some());
        let routes = fenced.filter(|route| rekeyed.contains(&*route.name));
        let takes = |route: &Route| (route.methods.clone(), route.path.clone(), route.conditions.clone());
        let leads = |route: &Route| plan.upstream(route.upstream).name.clone();
        routes.map(|route| (route.name.clone(), (takes(route), leads(route)))).collect()
    };
    if takes(before) == takes(after) { KeyChange::Change } else { KeyChange::Wander }
}

/// The upstreams that these routes lead to.
fn touched(plan: &Plan, rekeyed: &[String]) -> impl Iterator<Item = usize> {
    // A plan may have ten thousand routes.
    let rekeyed: HashSet<&str> = rekeyed.iter().map(String::as_str).collect();
    let routes = (0..plan.routes.routes().len()).map(RouteId).map(|id| plan.routes.get(id));
    let led = routes.filter(|route| rekeyed.contains(&*route.name)).map(|route| route.upstream.0);
    led.collect::<HashSet<usize>>().into_iter()
}

/// Sets that grow together; each is known by one of its members.
struct Kin(Vec<usize>);

impl Kin {
    fn of(members: usize) -> Self {
        Self((0..members).collect())
    }

    fn first(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}
