//! Collects the mistakes that were found. Reading goes on after a mistake, so that one run shows them all.

use std::cell::{Cell, RefCell};

use crate::diagnostics::{Diagnostic, Severity, SourceSpan};

/// Shared by all readers of one file.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    found: RefCell<Vec<Diagnostic>>,
    hints: RefCell<Vec<Diagnostic>>,
    /// The place where the file configures spans. That is no mistake of the file, but some builds cannot send them.
    traces: Cell<Option<SourceSpan>>,
}

impl Diagnostics {
    pub(super) fn push(&self, diagnostic: Diagnostic) {
        let found = if diagnostic.severity == Severity::Hint { &self.hints } else { &self.found };
        found.borrow_mut().push(diagnostic);
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

    /// All that was found, sorted by place.
    pub(super) fn into_found(self) -> FoundDiagnostics {
        let mut faults = self.found.into_inner();
        let mut hints = self.hints.into_inner();
        for list in [&mut faults, &mut hints] {
            list.sort_by_key(|diagnostic| diagnostic.place);
        }
        FoundDiagnostics { faults, hints, traces: self.traces.get() }
    }
}

/// All that was found in a file, by place.
pub(super) struct FoundDiagnostics {
    pub(super) faults: Vec<Diagnostic>,
    pub(super) hints: Vec<Diagnostic>,
    /// The place where the file configures spans.
    pub(super) traces: Option<SourceSpan>,
}
