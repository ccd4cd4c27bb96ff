//! Collects the findings of checks outside of the file.

use std::cell::RefCell;

use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode},
    file::FieldLocator,
};
use serde::Serialize;

/// An observation, good or bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OnlineCheckFinding {
    /// The subject, such as `zookeeper` or `upstream payments`.
    pub about: String,
    pub says: String,
}

/// Collects the findings of several checks that run at the same time on one thread.
pub(super) struct FindingCollector {
    places: FieldLocator,
    facts: RefCell<Vec<OnlineCheckFinding>>,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

impl FindingCollector {
    pub(super) fn new(text: &str) -> Self {
        Self { places: FieldLocator::parse(text), facts: RefCell::default(), diagnostics: RefCell::default() }
    }

    pub(super) fn record(&self, about: impl Into<String>, says: impl Into<String>) {
        self.facts.borrow_mut().push(OnlineCheckFinding { about: about.into(), says: says.into() });
    }

    /// `way` is the path of the field in the file.
    pub(super) fn report(&self, way: &[&str], diagnostic: Diagnostic) {
        let diagnostic = match self.places.find(way) {
            Some(place) => diagnostic.at(place),
            None => diagnostic,
        };
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    /// Reports a problem with its remedy. `way` is the path of the field in the file.
    pub(super) fn report_problem(
        &self,
        way: &[&str],
        code: DiagnosticCode,
        message: impl Into<String>,
        remedy: &str,
    ) {
        self.report(way, Diagnostic::new(code, message).with_remedy(remedy));
    }

    /// Diagnostics by place, and facts by subject. The order in which the answers came does not matter.
    pub(super) fn into_sorted(self) -> (Vec<OnlineCheckFinding>, Vec<Diagnostic>) {
        let mut facts = self.facts.into_inner();
        let mut diagnostics = self.diagnostics.into_inner();
        facts.sort_by(|one, other| (&one.about, &one.says).cmp(&(&other.about, &other.says)));
        diagnostics.sort_by(|one, other| (one.place, &one.message).cmp(&(other.place, &other.message)));
        (facts, diagnostics)
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::diagnostics::Severity;

    use super::*;

    const TEXT: &str = "zookeeper:\n  root: /fencegate\n  servers: [\"zk:2181\"]\n";

    /// A problem stands at its field; without a field of that name it has no place and comes first.
    #[test]
    fn problems_are_ordered_by_place() {
        let findings = FindingCollector::new(TEXT);
        for (way, message) in [
            (["zookeeper", "servers"], "no session"),
            (["zookeeper", "root"], "no node"),
            (["peer", "bind"], "no peer"),
        ] {
            findings.report_problem(&way, DiagnosticCode::NoEnsemble, message, "start it");
        }
        let (_, problems) = findings.into_sorted();
        let found: Vec<_> =
            problems.iter().map(|one| (one.place.map(|place| place.line), &*one.message)).collect();
        assert_eq!(found, [(None, "no peer"), (Some(2), "no node"), (Some(3), "no session")]);
        assert!(problems.iter().all(|one| one.severity == Severity::Error && one.remedy.is_some()));
    }

    /// Facts are ordered by subject and text, whatever order the answers came in.
    #[test]
    fn facts_are_ordered_by_subject() {
        let findings = FindingCollector::new(TEXT);
        for (about, says) in [("zookeeper", "b"), ("members", "none"), ("zookeeper", "a")] {
            findings.record(about, says);
        }
        let (facts, _) = findings.into_sorted();
        let found: Vec<_> = facts.iter().map(|one| (&*one.about, &*one.says)).collect();
        assert_eq!(found, [("members", "none"), ("zookeeper", "a"), ("zookeeper", "b")]);
    }
}
