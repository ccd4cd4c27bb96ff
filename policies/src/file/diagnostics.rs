//! Collects the mistakes in a file. Reading continues after a mistake, so that one run reports all of them.

use std::cell::{Cell, RefCell};

use crate::diagnostics::{Diagnostic, Severity, SourceSpan};

/// The mistakes that the readers of one file have found so far.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    found: RefCell<Vec<Diagnostic>>,
    hints: RefCell<Vec<Diagnostic>>,
    /// The place at which the file configures traces. This is no mistake, but some builds cannot send traces.
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

    /// Removes all faults but the first `known` ones.
    pub(super) fn truncate(&self, known: usize) {
        self.found.borrow_mut().truncate(known);
    }

    pub(super) fn record_traces(&self, place: SourceSpan) {
        self.traces.set(Some(place));
    }

    /// Everything that was found, sorted by place.
    pub(super) fn into_found(self) -> FoundDiagnostics {
        let mut faults = self.found.into_inner();
        let mut hints = self.hints.into_inner();
        for list in [&mut faults, &mut hints] {
            list.sort_by_key(|diagnostic| diagnostic.place);
        }
        FoundDiagnostics { faults, hints, traces: self.traces.get() }
    }
}

/// The results of reading a file, each list sorted by place.
pub(super) struct FoundDiagnostics {
    pub(super) faults: Vec<Diagnostic>,
    pub(super) hints: Vec<Diagnostic>,
    /// The place at which the file configures traces.
    pub(super) traces: Option<SourceSpan>,
}
