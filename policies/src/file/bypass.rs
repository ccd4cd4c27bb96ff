//! Finds bypasses of a fence or an `allow`: routes by which a writing request reaches a fenced resource without the
//! lock of that resource, or by which every client can use what another route restricts.

use std::cell::Cell;

use super::{diagnostics::Diagnostics, unreachable_routes::RoutePattern};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    graphql::GraphqlOperation,
    path::{
        PathTemplate,
        route_trie::{RouteTrie, TrieSegment},
    },
    plan::{AccessRule, BodyCondition, ServiceId, UpstreamId},
};

/// A route, with its lock and its rules, as far as they matter for a bypass.
pub(super) struct RouteLockCoverage<'r> {
    pub(super) pattern: RoutePattern<'r>,
    pub(super) upstream: UpstreamId,
    /// The service behind the upstream. Other upstreams may belong to the same service.
    pub(super) service: ServiceId,
    pub(super) passage: RouteFenceKind,
    /// The rules; empty if every client may use the route, `None` if a rule is invalid.
    pub(super) allow: Option<&'r [AccessRule]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteFenceKind {
    Fenced,
    /// The route has `fence: none`.
    Open,
    /// The route takes a shared lock, which does not keep two of its requests apart.
    Shared,
}

/// The safe methods, which change nothing (RFC 9110, section 9.2.1).
const SAFE: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

/// The most comparisons. Each route with a wide path is compared with all others. Beyond this number the remaining
/// warnings are left out, because reading the file would take too long.
const MOST_LOOKS: usize = 1 << 20;

/// Warns of each route that lets writing requests of a fenced route pass without a lock. `ways`: in the order in which
/// routes are tried.
pub(super) fn check_lock_bypasses(ways: &[RouteLockCoverage], faults: &Diagnostics) {
    let mut fenced = RouteTrie::new();
    for (index, access) in
        ways.iter().enumerate().filter(|(_, access)| access.passage == RouteFenceKind::Fenced)
    {
        fenced.insert(index, access.pattern.path);
    }
    let looks = Cell::new(0_usize);
    for (index, open) in ways.iter().enumerate().filter(|(_, access)| may_write_unlocked(access)) {
        if looks.get() > MOST_LOOKS {
            return;
        }
        let parts = trie_segments(open.pattern.path);
        let round = |other: usize| {
            looks.set(looks.get() + 1);
            ways[other].service == open.service
                && may_take_same_request(&ways[other], open)
                && uncovered_methods(&ways[other], open, other < index).is_some()
        };
        if let Some(other) = fenced.find_overlapping(&parts, round) {
            let methods = uncovered_methods(&ways[other], open, other < index).unwrap_or_default();
            let conditions = open.pattern.conditions;
            faults.push(match conditions.graphql_operation_name_condition().or(conditions.body.first()) {
                Some(member) => client_choice_warning(&ways[other], open, member),
                None => open_path_warning(&ways[other], open, &methods),
            });
        } else if parts.iter().any(|part| matches!(part, TrieSegment::Rest)) {
            let alike = |other: usize| {
                ways[other].service == open.service && !shared_writes(&ways[other], open).is_empty()
            };
            if let Some(other) = fenced.find_overlapping(&parts, alike) {
                faults.push(loose_match_warning(&ways[other], open));
            }
        }
    }
}

/// Warns of each route without an `allow` that takes requests of a route with one. `ways`: in the order in which routes
/// are tried.
///
/// A narrower route, such as `/admin/login` above `/admin/{rest...}`, is taken for an intended exception. Other
/// spellings of a path are refused at run time if a wide route would take them, so only routes that write such a
/// spelling out are reported.
pub(super) fn check_allow_bypasses(ways: &[RouteLockCoverage], faults: &Diagnostics) {
    let mut restricted = RouteTrie::new();
    let mut in_lowercase = RouteTrie::new();
    let has_rules = |way: &RouteLockCoverage| way.allow.is_some_and(|rules| !rules.is_empty());
    for (index, way) in ways.iter().enumerate().filter(|(_, way)| has_rules(way)) {
        restricted.insert(index, way.pattern.path);
        in_lowercase.insert(index, &way.pattern.path.to_lowercase());
    }
    let looks = Cell::new(0_usize);
    let is_open = |way: &RouteLockCoverage| way.allow.is_some_and(<[_]>::is_empty);
    for (index, open) in ways.iter().enumerate().filter(|(_, way)| is_open(way)) {
        if looks.get() > MOST_LOOKS {
            return;
        }
        let is_beside = |other: usize| {
            looks.set(looks.get() + 1);
            ways[other].service == open.service
                && ways[other].pattern.conditions.has_common_request(open.pattern.conditions)
        };
        let parts = trie_segments(open.pattern.path);
        let round = |other: usize| {
            is_beside(other) && unrestricted_methods(&ways[other], open, other < index).is_some()
        };
        if let Some(other) = restricted.find_overlapping(&parts, round) {
            let methods = unrestricted_methods(&ways[other], open, other < index).unwrap_or_default();
            faults.push(open_rule_warning(&ways[other], open, &methods));
            continue;
        }
        let readings = open.pattern.path.alternate_readings();
        let respelled = readings.iter().enumerate().find_map(|(number, reading)| {
            let is_respelled = |other: usize| {
                let path = ways[other].pattern.path;
                // The first reading only lowers the case. It counts as another spelling only if the paths have no
                // request in common as they are written.
                reading.writes_segments_of(path)
                    && path.writes_segments_of(reading)
                    && (number > 0 || restricted.find_overlapping(&parts, |same| same == other).is_none())
            };
            in_lowercase.find_overlapping(&trie_segments(reading), |other| {
                is_beside(other) && has_common_method(&ways[other], open) && is_respelled(other)
            })
        });
        if let Some(other) = respelled {
            faults.push(respelled_rule_warning(&ways[other], open));
        }
    }
}

/// The methods by which `open` takes requests that are meant for `restricted`; `None` if there are none, or if `open`
/// seems to be an intended exception, such as a separate route for reading.
fn unrestricted_methods(
    restricted: &RouteLockCoverage,
    open: &RouteLockCoverage,
    restricted_first: bool,
) -> Option<String> {
    let [theirs, ours] = [restricted.pattern.path, open.pattern.path];
    let is_written_out = ours.writes_segments_of(theirs);
    if is_written_out && !theirs.writes_segments_of(ours) {
        return None;
    }
    if !restricted_first && !is_written_out {
        // `open` is a wide route above `restricted`, so it takes every request that it matches.
        return match (open.pattern.methods, restricted.pattern.methods) {
            ([], []) => Some("every method".to_owned()),
            ([], methods) | (methods, []) => Some(methods.join(", ")),
            (methods, _) => {
                let shared: Vec<&str> = methods
                    .iter()
                    .map(String::as_str)
                    .filter(|method| matches_method(restricted, method))
                    .collect();
                (!shared.is_empty()).then(|| shared.join(", "))
            }
        };
    }
    uncovered_methods(restricted, open, restricted_first)
}

fn trie_segments(path: &PathTemplate) -> Vec<TrieSegment<'_>> {
    path.pieces().iter().map(TrieSegment::from).collect()
}

fn has_common_method(one: &RouteLockCoverage, other: &RouteLockCoverage) -> bool {
    let [ours, theirs] = [one.pattern.methods, other.pattern.methods];
    ours.is_empty() || theirs.is_empty() || ours.iter().any(|method| theirs.contains(method))
}

fn may_write_unlocked(access: &RouteLockCoverage) -> bool {
    access.passage == RouteFenceKind::Open
        && access.pattern.conditions.graphql != Some(GraphqlOperation::Query)
        && (access.pattern.methods.is_empty() || writing_methods(access).next().is_some())
}

/// Whether one request can match both routes. The name of a GraphQL operation does not separate them, because a request
/// with either name may run any operation.
fn may_take_same_request(fenced: &RouteLockCoverage, open: &RouteLockCoverage) -> bool {
    let open = open.pattern.conditions;
    match open.graphql_operation_name_condition() {
        Some(_) => fenced.pattern.conditions.has_common_head(open),
        None => fenced.pattern.conditions.has_common_request(open),
    }
}

/// The writing methods that `open` takes and that are meant for the paths of `fenced`; `None` if there are none.
fn uncovered_methods(
    fenced: &RouteLockCoverage,
    open: &RouteLockCoverage,
    fenced_first: bool,
) -> Option<String> {
    // If the fenced route comes first and takes all of these requests, they do not reach the open route.
    let taken = fenced_first && fenced.pattern.conditions.covers(open.pattern.conditions);
    let taken = |method: &str| taken && matches_method(fenced, method);
    if open.pattern.methods.is_empty() {
        let all = taken("POST") && fenced.pattern.methods.is_empty();
        return (!all).then(|| match fenced.pattern.methods {
            [] => "every method".to_owned(),
            methods if fenced_first => format!("every method but {}", methods.join(", ")),
            _ => "every method".to_owned(),
        });
    }
    let methods: Vec<&str> = writing_methods(open).filter(|method| !taken(method)).collect();
    (!methods.is_empty()).then(|| methods.join(", "))
}

fn writing_methods<'w>(access: &'w RouteLockCoverage) -> impl Iterator<Item = &'w str> {
    access.pattern.methods.iter().map(String::as_str).filter(|method| !SAFE.contains(method))
}

/// The writing methods that both routes take.
fn shared_writes<'w>(fenced: &'w RouteLockCoverage, open: &'w RouteLockCoverage) -> Vec<&'w str> {
    match (fenced.pattern.methods, open.pattern.methods) {
        ([], []) => vec!["POST"],
        ([], _) => writing_methods(open).collect(),
        (_, []) => writing_methods(fenced).collect(),
        _ => writing_methods(open).filter(|method| matches_method(fenced, method)).collect(),
    }
}

fn matches_method(access: &RouteLockCoverage, method: &str) -> bool {
    access.pattern.methods.is_empty() || access.pattern.methods.iter().any(|ours| ours == method)
}

fn open_path_warning(fenced: &RouteLockCoverage, open: &RouteLockCoverage, methods: &str) -> Diagnostic {
    let locks = fenced.pattern.name;
    let passes = open.pattern.name;
    let message = format!(
        "route `{passes}` lets {methods} pass without a lock on paths that route `{locks}` fences{}",
        service_note(fenced, open)
    );
    let conditions = fenced.pattern.conditions;
    let remedy = if conditions.graphql.is_some() {
        "write `graphql: query` here: then nothing passes that may be a mutation"
    } else if !conditions.body.is_empty() {
        "fence this route as well: a request gets here with every other value, and without the member"
    } else {
        "fence these methods by the same key, or let this route take `methods: [GET, HEAD]` only"
    };
    Diagnostic::new(DiagnosticCode::OpenPath, message).at(open.pattern.place).with_remedy(remedy)
}

/// Warns of an open route that only a condition on the body separates from a fenced route. The client writes the body,
/// so such a condition does not prevent a bypass.
fn client_choice_warning(
    fenced: &RouteLockCoverage,
    open: &RouteLockCoverage,
    member: &BodyCondition,
) -> Diagnostic {
    let message = format!(
        "route `{}` lets requests pass without a lock for what `{}` in their body says, on paths that route `{}` fences{}",
        open.pattern.name,
        member.pointer,
        fenced.pattern.name,
        service_note(fenced, open)
    );
    let remedy = match open.pattern.conditions.graphql_operation_name_condition() {
        Some(_) => {
            "no name says what runs, `mutation GetOrder` is as good as any: write `graphql: query` in its place, unless the service runs only documents that it knows"
        }
        None => {
            "make sure that the service does for this value nothing that needs the lock, whatever else the body has"
        }
    };
    Diagnostic::new(DiagnosticCode::ClientChoice, message).at(open.pattern.place).with_remedy(remedy)
}

fn loose_match_warning(fenced: &RouteLockCoverage, open: &RouteLockCoverage) -> Diagnostic {
    let locks = fenced.pattern.name;
    let passes = open.pattern.name;
    let message = format!(
        "route `{passes}` takes other spellings of the paths of route `{locks}`, such as other case or a slash at the end, and passes them without a lock{}",
        service_note(fenced, open)
    );
    let remedy = "leave out the methods that write, or make sure the service refuses such spellings";
    Diagnostic::new(DiagnosticCode::LooseRoute, message).at(open.pattern.place).with_remedy(remedy)
}

fn open_rule_warning(restricted: &RouteLockCoverage, open: &RouteLockCoverage, methods: &str) -> Diagnostic {
    let rules = restricted.pattern.name;
    let passes = open.pattern.name;
    let message = format!(
        "route `{passes}` lets {methods} of everybody pass on paths that route `{rules}` allows to some{}",
        service_note(restricted, open)
    );
    let remedy =
        format!("write the `allow` of route `{rules}` here as well, or let that route take these methods");
    Diagnostic::new(DiagnosticCode::OpenRule, message).at(open.pattern.place).with_remedy(remedy)
}

fn respelled_rule_warning(restricted: &RouteLockCoverage, open: &RouteLockCoverage) -> Diagnostic {
    let rules = restricted.pattern.name;
    let passes = open.pattern.name;
    let message = format!(
        "but for case, a suffix or a slash at the end, route `{passes}` lets everybody pass on paths that route `{rules}` allows to some{}",
        service_note(restricted, open)
    );
    let remedy = format!(
        "write the `allow` of route `{rules}` here as well, or make sure that the service tells the two apart"
    );
    Diagnostic::new(DiagnosticCode::OpenRule, message).at(open.pattern.place).with_remedy(remedy)
}

/// The part of a message that explains why two upstreams are one service.
fn service_note(fenced: &RouteLockCoverage, open: &RouteLockCoverage) -> &'static str {
    if fenced.upstream == open.upstream { "" } else { ": their upstreams share an endpoint" }
}
