//! Finds unchanged routes whose requests differ from before, because a changed route above them takes some of their
//! requests or no longer takes some.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashSet},
};

use crate::{
    path::route_trie::{RouteTrie, TrieSegment},
    plan::{CommonServingPlan, Route},
};

/// The most comparisons. Each route with a wide path is compared with all others; above this limit every fenced route
/// counts as affected.
const MOST_LOOKS: usize = 1 << 20;

/// The fenced routes that are the same in both plans and share requests with a route of `moved`, in the order of the
/// new plan.
pub(super) fn affected_routes<'p>(
    before: &CommonServingPlan,
    after: &'p CommonServingPlan,
    moved: &HashSet<&str>,
) -> Vec<&'p Route> {
    let names: HashSet<&str> =
        fenced_routes_below_moved(before, moved).chain(fenced_routes_below_moved(after, moved)).collect();
    after.routes.routes().iter().filter(|route| names.contains(&*route.name)).collect()
}

/// The fenced routes of a plan that are not in `moved` and share requests with a route of `moved` above them.
fn fenced_routes_below_moved<'p>(
    plan: &'p CommonServingPlan,
    moved: &HashSet<&str>,
) -> impl Iterator<Item = &'p str> {
    let routes = plan.routes.routes();
    let fenced = || routes.iter().enumerate().filter(|(_, route)| route.fence.is_some());
    let (above, others): (Vec<_>, Vec<_>) = fenced().partition(|(_, route)| moved.contains(&*route.name));
    let mut tree = RouteTrie::new();
    others.iter().for_each(|(index, route)| tree.insert(*index, &route.path));
    let found = RefCell::new(BTreeSet::new());
    let looks = Cell::new(0_usize);
    for (at, route) in above {
        let parts: Vec<TrieSegment> = route.path.pieces().iter().map(TrieSegment::from).collect();
        // The closure accepts no route before the limit is reached, so the search visits all of them.
        tree.find_overlapping(&parts, |index| {
            looks.set(looks.get() + 1);
            if index > at && share_requests(route, &routes[index]) {
                found.borrow_mut().insert(index);
            }
            looks.get() > MOST_LOOKS
        });
        if looks.get() > MOST_LOOKS {
            found.replace(others.iter().map(|(index, _)| *index).collect());
            break;
        }
    }
    found.into_inner().into_iter().map(|index| &*routes[index].name)
}

/// Whether one request can have a method that both routes take, and meet the conditions of both.
fn share_requests(one: &Route, other: &Route) -> bool {
    let methods = one.methods.is_empty()
        || other.methods.is_empty()
        || one.methods.iter().any(|method| other.methods.contains(method));
    methods && one.conditions.has_common_request(&other.conditions)
}
