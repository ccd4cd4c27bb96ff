//! Finds the routes whose requests change hands, though nothing of the routes themselves has changed: a route above them
//! takes requests that were theirs, or leaves them some that were its own.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashSet},
};

use crate::{
    path::segments::{Fragment, Tree},
    plan::{Plan, Route},
};

/// Wide routes have to be held against all others. Where that takes longer, every fenced route is taken for one of these.
const MOST_LOOKS: usize = 1 << 20;

/// Fenced routes that are alike in both plans, which share requests with one of `moved`. In the order of the new plan.
pub(super) fn over<'p>(before: &Plan, after: &'p Plan, moved: &HashSet<&str>) -> Vec<&'p Route> {
    let names: HashSet<&str> = below(before, moved).chain(below(after, moved)).collect();
    after.routes.routes().iter().filter(|route| names.contains(&*route.name)).collect()
}

/// Fenced routes of a plan which share requests with one of `moved` that stands above them, and are not of these.
fn below<'p>(plan: &'p Plan, moved: &HashSet<&str>) -> impl Iterator<Item = &'p str> {
    let routes = plan.routes.routes();
    let fenced = || routes.iter().enumerate().filter(|(_, route)| route.fence.is_some());
    let (above, others): (Vec<_>, Vec<_>) = fenced().partition(|(_, route)| moved.contains(&*route.name));
    let mut tree = Tree::new();
    others.iter().for_each(|(index, route)| tree.insert(*index, &route.path));
    let (found, looks) = (RefCell::new(BTreeSet::new()), Cell::new(0_usize));
    for (at, route) in above {
        let parts: Vec<Fragment> = route.path.pieces().iter().map(Fragment::from).collect();
        // None is ever taken, so that all are looked at.
        tree.first_meeting(&parts, |index| {
            looks.set(looks.get() + 1);
            if index > at && share(route, &routes[index]) {
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

/// Some request has a method that both take, and meets the conditions of both.
fn share(one: &Route, other: &Route) -> bool {
    let methods = one.methods.is_empty()
        || other.methods.is_empty()
        || one.methods.iter().any(|method| other.methods.contains(method));
    methods && one.conditions.meet(&other.conditions)
}
