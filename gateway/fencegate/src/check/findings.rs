//! Collects what is found out about a file beyond the file.

use std::cell::RefCell;

use fencegate_policies::{
    diagnose::{Code, Diagnostic},
    file::Places,
};
use serde::Serialize;

/// Something that was seen, good or bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// `zookeeper`, `upstream payments` and the like.
    pub about: String,
    pub says: String,
}

/// Several look at once, on one thread.
pub(super) struct Findings {
    places: Places,
    facts: RefCell<Vec<Fact>>,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

impl Findings {
    pub(super) fn in_file(text: &str) -> Self {
        Self { places: Places::of(text), facts: RefCell::default(), diagnostics: RefCell::default() }
    }

    pub(super) fn saw(&self, about: impl Into<String>, says: impl Into<String>) {
        self.facts.borrow_mut().push(Fact { about: about.into(), says: says.into() });
    }

    /// `way`: the field that leads there.
    pub(super) fn found(&self, way: &[&str], diagnostic: Diagnostic) {
        let diagnostic = match self.places.find(way) {
            Some(place) => diagnostic.at(place),
            None => diagnostic,
        };
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    /// The same, as one is most often written.
    pub(super) fn wrong(&self, way: &[&str], code: Code, message: impl Into<String>, remedy: &str) {
        self.found(way, Diagnostic::new(code, message).remedy(remedy));
    }

    /// By place, and facts by what they are about: which answer came first means nothing.
    pub(super) fn sorted(self) -> (Vec<Fact>, Vec<Diagnostic>) {
        let (mut facts, mut diagnostics) = (self.facts.into_inner(), self.diagnostics.into_inner());
        facts.sort_by(|one, other| (&one.about, &one.says).cmp(&(&other.about, &other.says)));
        diagnostics.sort_by(|one, other| (one.place, &one.message).cmp(&(other.place, &other.message)));
        (facts, diagnostics)
    }
}
