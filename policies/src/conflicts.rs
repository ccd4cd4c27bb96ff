//! Finds the routes of two plans that may give one request two locks.
//!
//! A request may take route *i* of our plan, and route *j* of their plan. Two routes are twins if they take the same
//! requests for the same service. Let *i'* be the twin of *i* in their plan, and *j'* the twin of *j* in our plan. The
//! request matches all four routes, and each plan takes the first match. So *i* stands above *j'* in our plan, and *j*
//! stands above *i'* in theirs.
//!
//! Therefore only few pairs of different routes have to be compared: those whose order differs between the plans, and
//! those of which one route has no twin. Of these, only pairs that one request can match are compared. The locks of a
//! route and its twin are always compared.
//!
//! Leases are compared separately: [`lease_conflicts`] compares the keys that clients hold by themselves.

mod lease_conflicts;

use std::collections::{HashMap, HashSet};

use self::lease_conflicts::{LeaseConflictIndex, MOST_LOOKS};
use crate::{
    key::ResourceKey,
    plan::{CanonicalAddress, MatchConditions},
    plan_digest::{PublishedFencedRoute, PublishedLockRules, PublishedMatchConditions, PublishedPathSegment},
};

/// The result of comparing two plans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanConflictReport {
    /// Indices in the order of [`PublishedLockRules::entries`]: first those of our routes with a lock that is
    /// incompatible with the other plan, then those of our lease patterns.
    pub ours: Vec<usize>,
    /// True if the plans are too large and too different to compare all pairs. Every pair that was not compared then
    /// counts as incompatible.
    pub unfinished: bool,
}

/// One plan, with derived data that the comparison of two routes needs.
struct ComparedPlan<'p> {
    routes: &'p [PublishedFencedRoute],
    spots: Vec<HashSet<CanonicalAddress>>,
    conditions: Vec<MatchConditions>,
    /// The index of each route's twin in the other plan.
    twin: Vec<Option<usize>>,
}

/// Finds the routes and lease patterns of `ours` by which a request or client may take another lock than by `theirs`.
pub fn find_conflicts(ours: &PublishedLockRules, theirs: &PublishedLockRules) -> PlanConflictReport {
    let all = ours.routes.len() + ours.leases.len();
    let leased = LeaseConflictIndex::new(ours).conflicts_with(&LeaseConflictIndex::new(theirs));
    let mut found: HashSet<usize> = leased.at.into_iter().collect();
    let mut ours = ComparedPlan::new(ours);
    let mut theirs = ComparedPlan::new(theirs);
    pair_equivalent_routes(&mut ours, &mut theirs);
    for (at, twin) in ours.twin.iter().enumerate() {
        if twin.is_some_and(|twin| !ours.routes[at].has_common_lock(&theirs.routes[twin])) {
            found.insert(at);
        }
    }
    let Some(pairs) = pairs_with_changed_precedence(&ours, &theirs) else {
        return PlanConflictReport { ours: (0..all).collect(), unfinished: true };
    };
    for (one, other) in pairs {
        if !found.contains(&one)
            && !ours.routes[one].has_common_lock(&theirs.routes[other])
            && may_match_same_request(&ours, one, &theirs, other)
        {
            found.insert(one);
        }
    }
    let mut found: Vec<usize> = found.into_iter().collect();
    found.sort_unstable();
    PlanConflictReport { ours: found, unfinished: leased.unfinished }
}

/// Returns the first key of `held` that a request may lock in another way by `theirs`. The keys of `held` are held by
/// clients with the locks of `ours`. If there are too many pairs to compare each, the returned key may have no
/// conflict.
pub fn find_key_conflict<'k>(
    ours: &PublishedLockRules,
    held: &'k [ResourceKey],
    theirs: &PublishedLockRules,
) -> Option<&'k ResourceKey> {
    let at =
        LeaseConflictIndex::for_lease_keys(ours, held).conflicting_patterns(&LeaseConflictIndex::new(theirs));
    at.first().map(|at| &held[*at])
}

impl<'p> ComparedPlan<'p> {
    fn new(plan: &'p PublishedLockRules) -> Self {
        let spots = |route: &PublishedFencedRoute| {
            route.endpoints.iter().map(|endpoint| CanonicalAddress::parse(endpoint)).collect()
        };
        Self {
            routes: &plan.routes,
            spots: plan.routes.iter().map(spots).collect(),
            conditions: plan.routes.iter().map(|route| route.conditions.conditions()).collect(),
            twin: vec![None; plan.routes.len()],
        }
    }

    fn is_same_service(&self, at: usize, other: &ComparedPlan, there: usize) -> bool {
        self.routes[at].upstream == other.routes[there].upstream
            || !self.spots[at].is_disjoint(&other.spots[there])
    }
}

impl PublishedFencedRoute {
    /// Whether a client of one route waits for a holder by the other route, because both take a lock in common.
    fn has_common_lock(&self, other: &Self) -> bool {
        self.locks.iter().any(|lock| other.locks.contains(lock))
    }
}

/// Each route has at most one twin: the first route of the other plan that takes the same requests for the same
/// service and has no twin yet.
fn pair_equivalent_routes(ours: &mut ComparedPlan, theirs: &mut ComparedPlan) {
    fn match_criteria(
        route: &PublishedFencedRoute,
    ) -> (&[String], &[PublishedPathSegment], &PublishedMatchConditions) {
        (&route.methods, &route.path, &route.conditions)
    }
    let mut there: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, route) in theirs.routes.iter().enumerate() {
        there.entry(match_criteria(route)).or_default().push(at);
    }
    for at in 0..ours.routes.len() {
        let Some(same) = there.get(&match_criteria(&ours.routes[at])) else { continue };
        let free =
            |other: &&usize| theirs.twin[**other].is_none() && ours.is_same_service(at, theirs, **other);
        if let Some(&twin) = same.iter().find(free) {
            ours.twin[at] = Some(twin);
            theirs.twin[twin] = Some(at);
        }
    }
}

/// Pairs of routes of which one may take requests that the other takes in the other plan; `None` if there are too many
/// to compare.
fn pairs_with_changed_precedence(ours: &ComparedPlan, theirs: &ComparedPlan) -> Option<Vec<(usize, usize)>> {
    let alone = |side: &ComparedPlan| -> Vec<usize> {
        (0..side.twin.len()).filter(|at| side.twin[*at].is_none()).collect()
    };
    let all: Vec<usize> = (0..theirs.twin.len()).collect();
    let alone_here = alone(ours).len();
    let alone_there = alone(theirs);
    // If all twins have the same order in both plans, only routes without a twin matter.
    let in_order = ours.twin.iter().flatten().is_sorted();
    let paired = ours.twin.len() - alone_here;
    let others = if in_order { &alone_there } else { &all };
    let looks = alone_here.saturating_mul(all.len()).saturating_add(paired.saturating_mul(others.len()));
    if looks > MOST_LOOKS {
        return None;
    }
    let mut pairs = Vec::new();
    for (one, twin) in ours.twin.iter().enumerate() {
        for &other in if twin.is_none() { &all } else { others } {
            let may = match (*twin, theirs.twin[other]) {
                (Some(twin), _) if twin == other => false,
                (Some(twin), Some(there)) => one < there && other < twin,
                (Some(twin), None) => other < twin,
                (None, Some(there)) => one < there,
                (None, None) => true,
            };
            if may {
                pairs.push((one, other));
            }
        }
    }
    Some(pairs)
}

/// Whether one request can match both routes.
fn may_match_same_request(ours: &ComparedPlan, one: usize, theirs: &ComparedPlan, other: usize) -> bool {
    let route = &ours.routes[one];
    let there = &theirs.routes[other];
    let methods = route.methods.is_empty()
        || there.methods.is_empty()
        || route.methods.iter().any(|method| there.methods.contains(method));
    methods
        && may_paths_overlap(&route.path, &there.path)
        && ours.is_same_service(one, theirs, other)
        && ours.conditions[one].has_common_request(&theirs.conditions[other])
}

fn may_paths_overlap(ours: &[PublishedPathSegment], theirs: &[PublishedPathSegment]) -> bool {
    let mut ours = ours.iter();
    let mut theirs = theirs.iter();
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(PublishedPathSegment::Rest), Some(_)) | (Some(_), Some(PublishedPathSegment::Rest)) => {
                return true;
            }
            (Some(PublishedPathSegment::Is(one)), Some(PublishedPathSegment::Is(other))) if one != other => {
                return false;
            }
            // An empty literal segment stands for a trailing slash, and a variable never has an empty value, so the
            // two do not match one path.
            (Some(PublishedPathSegment::Is(one)), Some(PublishedPathSegment::Any))
            | (Some(PublishedPathSegment::Any), Some(PublishedPathSegment::Is(one)))
                if one.is_empty() =>
            {
                return false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
