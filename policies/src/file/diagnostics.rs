//! Collects the mistakes that were found. Reading goes on after a mistake, so that one run shows them all.

use std::cell::{Cell, RefCell};

use crate::diagnostics::{Diagnostic, SourceSpan};

/// Shared by all readers of one file.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    found: RefCell<Vec<Diagnostic>>,
    /// The place where the file configures spans. That is no mistake of the file, but some builds cannot send them.
    traces: Cell<Option<SourceSpan>>,
}

impl Diagnostics {
    pub(super) fn push(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    pub(super) fn len(&self) -> usize {
        self.found.borrow().len()
    }

    /// Drops all faults but the first `known`.
    pub(super) fn truncate(&self, known: usize) {
        self.found.borrow_mut().truncate(known);
    }

    pub(super) fn record_traces(&self, place: SourceSpan) {
        self.traces.set(Some(place));
    }

    /// All faults, sorted by place, and the place where the file configures spans.
    pub(super) fn into_parts(self) -> (Vec<Diagnostic>, Option<SourceSpan>) {
        let mut found = self.found.into_inner();
        found.sort_by_key(|diagnostic| diagnostic.place);
        (found, self.traces.get())
    }
}
