//! Withdraws proposed routes that would take the requests of an operation without a route, because those requests
//! have to be refused.

use fencegate_policies::key::{KeyTemplate, RequestValues, TemplateValueSource};

use super::proposal::{RouteFenceDecision, RouteProposal, RouteProposals};

/// Withdraws each route that takes requests of an undecided operation, until none is left.
pub(super) fn withdraw_overlapping_routes(proposals: &mut RouteProposals) {
    // The methods of an unread path are not known, so each method counts.
    let unread =
        proposals.unread_paths.iter().map(|path| UnroutedRequestPattern { method: None, path: path.clone() });
    let unread: Vec<_> = unread.collect();
    loop {
        let undecided = proposals.proposals.iter().filter_map(UnroutedRequestPattern::from_proposal);
        let refused: Vec<_> = undecided.chain(unread.iter().cloned()).collect();
        let mut is_changed = false;
        for proposal in &mut proposals.proposals {
            let (RouteFenceDecision::Fence { key, .. }, Some(template)) =
                (&proposal.decision, &proposal.template)
            else {
                continue;
            };
            let mut taken = refused.iter().filter(|refused| {
                let method = refused.method.as_ref().unwrap_or(&proposal.method);
                *method == proposal.method && may_route_match(template, &key.template, &refused.path)
            });
            if let Some(UnroutedRequestPattern { path, .. }) = taken.next() {
                let method = &proposal.method;
                let reason = format!(
                    "a route for it would take requests of `{method} {path}` as well, which has none"
                );
                let candidates = vec![key.clone()];
                proposal.decision = RouteFenceDecision::Undecided { reason, candidates };
                is_changed = true;
            }
        }
        if !is_changed {
            return;
        }
    }
}

/// Requests that have to be refused, because their operation has no route.
#[derive(Debug, Clone)]
struct UnroutedRequestPattern {
    /// The method; `None` for every method.
    method: Option<String>,
    path: String,
}

impl UnroutedRequestPattern {
    fn from_proposal(proposal: &RouteProposal) -> Option<Self> {
        let is_refused = matches!(proposal.decision, RouteFenceDecision::Undecided { .. });
        is_refused.then(|| Self { method: Some(proposal.method.clone()), path: proposal.path.clone() })
    }
}

/// True if a route may take a request for `path`, and no filter of its key refuses the request.
fn may_route_match(template: &str, key: &str, path: &str) -> bool {
    if template.split('/').count() != path.split('/').count() {
        return false;
    }
    let mut taken = None;
    for (ours, theirs) in template.split('/').zip(path.split('/')) {
        match ours.split_once('{') {
            None if !theirs.contains('{') && ours != theirs => return false,
            None => {}
            Some((before, rest)) => {
                let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
                if theirs.contains('{') {
                    continue;
                }
                let value = theirs.strip_prefix(before).and_then(|theirs| theirs.strip_suffix(after));
                let Some(value) = value.filter(|value| !value.is_empty()) else { return false };
                taken = taken.or(Some(PathVariableValue { name, value }));
            }
        }
    }
    match (taken, KeyTemplate::parse(key)) {
        // The key is expanded only if the path gives it a value: a value of another source does not depend on the
        // path.
        (Some(taken), Ok(key)) if key.variables().any(|variable| taken.is_source(&variable.source)) => {
            key.expand(&taken).is_ok()
        }
        _ => true,
    }
}

/// The value that a variable of a route's path takes from another path.
struct PathVariableValue<'p> {
    name: &'p str,
    value: &'p str,
}

impl PathVariableValue<'_> {
    fn is_source(&self, source: &TemplateValueSource) -> bool {
        matches!(source, TemplateValueSource::Path(name) if **name == *self.name)
    }
}

impl RequestValues for PathVariableValue<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        (name == self.name).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route with a variable takes the paths that have a fixed segment in its place, unless a filter of the key
    /// refuses that segment.
    #[test]
    fn route_takes_paths_of_its_form() {
        for (template, key, path, takes) in [
            ("/orders/{id}", "orders/{path.id}", "/orders/search", true),
            ("/orders/{id}", "orders/{path.id | int}", "/orders/search", false),
            ("/orders/{id}", "orders/{path.id | int}", "/orders/2024", true),
            ("/orders/{id}", "orders/{path.id}", "/orders", false),
            ("/orders/{id}", "orders/{path.id}", "/carts/x", false),
            ("/orders/{id}", "orders/{path.id | int}", "/orders/{a}-{b}", true),
            ("/orders/{id}:x", "orders/{path.id}", "/orders/search", false),
            ("/orders/{id}:x", "orders/{path.id}", "/orders/a:x", true),
            ("/orders/a", "orders/{body:/id}", "/orders/{x}{y}", true),
        ] {
            assert_eq!(may_route_match(template, key, path), takes, "{template} {key} {path}");
        }
    }
}
