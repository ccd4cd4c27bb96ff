//! Reads which sources of a request the service reads, so that contradictions between them are refused.

use super::mapping::MappingReader;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{ParameterLocation, SourceConflictPolicy},
};

pub(super) fn conflicts(fence: &mut MappingReader) -> SourceConflictPolicy {
    let sources = fence.values("sources", source);
    let words = [(SourceConflictPolicy::REFUSE, false), (SourceConflictPolicy::PASS, true)];
    let passes = fence.keyword("conflicts", &words).unwrap_or_default();
    if !passes {
        return sources.map_or(SourceConflictPolicy::RefuseAny, SourceConflictPolicy::Refuse);
    }
    if fence.is_present("sources") {
        let fault =
            Diagnostic::new(DiagnosticCode::NoEffect, "`sources` has no effect beside `conflicts: pass`");
        fence.report("sources", fault.with_remedy("leave one of the two out"));
    }
    let message = "the value of a key may stand elsewhere in a request with another value: \
                   the lock is for one, and the service may work on the other";
    let remedy = "leave it out, and list what the service reads: `sources: [path, json]`";
    fence.report("conflicts", Diagnostic::new(DiagnosticCode::SourceConflicts, message).with_remedy(remedy));
    SourceConflictPolicy::Pass
}

fn source(text: &str) -> Result<ParameterLocation, Diagnostic> {
    let known = ParameterLocation::WORDS.map(|(word, _)| word);
    let found = ParameterLocation::WORDS.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, source)| source).ok_or_else(|| {
        let message = format!("`{text}` is no source of a request");
        Diagnostic::new(DiagnosticCode::UnknownValue, message).suggest(text, &known, str::to_owned)
    })
}
