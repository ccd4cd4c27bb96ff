//! Takes routes back that would take the requests of an operation without a route: its requests have to be refused.

use fencegate_policies::key::{KeyTemplate, RequestValues, TemplateValueSource};

use super::proposal::{Decision, Proposal};

/// Leaves only routes that take no requests of an undecided operation.
pub(super) fn withdraw(proposals: &mut [Proposal]) {
    loop {
        let undecided: Vec<(String, String)> = proposals
            .iter()
            .filter(|proposal| matches!(proposal.decision, Decision::Undecided { .. }))
            .map(|proposal| (proposal.method.clone(), proposal.path.clone()))
            .collect();
        let mut is_changed = false;
        for proposal in proposals.iter_mut() {
            let Decision::Fence { key, .. } = &proposal.decision else { continue };
            let Some(template) = &proposal.template else { continue };
            let may_take = |(method, path): &&(String, String)| {
                *method == proposal.method && may_take(template, &key.template, path)
            };
            if let Some((method, path)) = undecided.iter().find(may_take) {
                let reason = format!(
                    "a route for it would take requests of `{method} {path}` as well, which has none"
                );
                let candidates = vec![key.clone()];
                proposal.decision = Decision::Undecided { reason, candidates };
                is_changed = true;
            }
        }
        if !is_changed {
            return;
        }
    }
}

/// True if a route may take a request for `path`, and a filter of its key does not refuse it.
fn may_take(template: &str, key: &str, path: &str) -> bool {
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
                taken = taken.or(Some(TakenValue { name, value }));
            }
        }
    }
    match (taken, KeyTemplate::parse(key)) {
        // Of the values of the path alone: another source is there or not, whatever the path is.
        (Some(taken), Ok(key)) if key.variables().any(|variable| taken.is_source(&variable.source)) => {
            key.expand(&taken).is_ok()
        }
        _ => true,
    }
}

/// The value that a variable of a path takes.
struct TakenValue<'p> {
    name: &'p str,
    value: &'p str,
}

impl TakenValue<'_> {
    fn is_source(&self, source: &TemplateValueSource) -> bool {
        matches!(source, TemplateValueSource::Path(name) if **name == *self.name)
    }
}

impl RequestValues for TakenValue<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        (name == self.name).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable takes fixed segments of other paths, unless a filter refuses them.
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
            assert_eq!(may_take(template, key, path), takes, "{template} {key} {path}");
        }
    }
}
