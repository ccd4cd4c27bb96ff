//! Finds routes that no request can reach, because the routes above them take all their requests.

use std::ptr;

use super::diagnostics::Diagnostics;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    path::{
        PathTemplate,
        route_trie::{RouteTrie, TrieSegment},
    },
    plan::MatchConditions,
};

/// A route's name, and the requests that it matches.
pub(super) struct RoutePattern<'r> {
    pub(super) name: &'r str,
    /// The methods; an empty list means every method.
    pub(super) methods: &'r [String],
    pub(super) path: &'r PathTemplate,
    pub(super) conditions: &'r MatchConditions,
    pub(super) place: SourceSpan,
}

/// Reports unreachable routes. `routes`: in the order in which they are tried.
///
/// A route counts as unreachable if, for each of its methods, a single route above matches at least the same paths.
/// Routes that match these paths only together, such as `/v1/`, `/v1/{a}` and `/v1/{a}/{b...}` above `/v1/{c...}`,
/// are not found.
pub(super) fn check_unreachable_routes(routes: &[RoutePattern], faults: &Diagnostics) {
    let mut earlier = RouteTrie::new();
    for (index, route) in routes.iter().enumerate() {
        if let Some(takers) = covering_routes(&earlier, routes, route) {
            let takers: Vec<String> = takers.iter().map(|taker| format!("`{}`", taker.name)).collect();
            let message = format!("no request can reach route `{}`", route.name);
            let remedy = format!("all are taken by {} above: move this route up", takers.join(" and "));
            faults.push(
                Diagnostic::new(DiagnosticCode::Unreachable, message).at(route.place).with_remedy(remedy),
            );
        }
        earlier.insert(index, route.path);
    }
}

/// The routes above that together take all requests of `late`; `None` if some request reaches `late`.
fn covering_routes<'a, 'r>(
    earlier: &RouteTrie,
    routes: &'a [RoutePattern<'r>],
    late: &RoutePattern,
) -> Option<Vec<&'a RoutePattern<'r>>> {
    let path: Vec<TrieSegment> = late.path.pieces().iter().map(TrieSegment::from).collect();
    let covering = |takes: &dyn Fn(&[String]) -> bool| {
        let covers = |index: usize| {
            let route: &RoutePattern = &routes[index];
            takes(route.methods) && route.conditions.covers(late.conditions)
        };
        earlier.find_covering(&path, covers).map(|index| &routes[index])
    };
    if late.methods.is_empty() {
        return Some(vec![covering(&|methods| methods.is_empty())?]);
    }
    let mut takers: Vec<&RoutePattern> = Vec::new();
    for method in late.methods {
        let taker = covering(&|methods| methods.is_empty() || methods.contains(method))?;
        if !takers.iter().any(|known| ptr::eq(*known, taker)) {
            takers.push(taker);
        }
    }
    Some(takers)
}
