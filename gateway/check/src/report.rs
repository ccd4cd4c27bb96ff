//! The findings in a form for programs. `policies/REFERENCE.md` describes the fields, and none of them is ever removed.

use fencegate_policies::{
    diagnostics::{Diagnostic, Severity},
    file::PolicyProcessKind,
};
use serde::Serialize;

use super::{explain::RequestExplanation, findings::OnlineCheckFinding};

#[derive(Debug, Serialize)]
pub struct PolicyCheckReport<'c> {
    pub file: &'c str,
    pub kind: &'static str,
    /// Whether there is no error.
    pub good: bool,
    pub errors: usize,
    pub warnings: usize,
    pub diagnostics: Vec<DiagnosticJson<'c>>,
    /// Remarks about parts that are no mistake, but may be written better.
    pub hints: Vec<DiagnosticJson<'c>>,
    /// `null` without `--online`, and if the file has errors.
    pub online: Option<&'c [OnlineCheckFinding]>,
    /// The explanation of a request by the file; absent unless a request was named, and if the file has errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<&'c RequestExplanation>,
}

/// One diagnostic.
#[derive(Debug, Serialize)]
pub struct DiagnosticJson<'c> {
    pub code: &'static str,
    pub severity: String,
    pub message: &'c str,
    /// The line, counted from 1; `null` if no part of the file is at fault.
    pub line: Option<usize>,
    /// In characters, from 1.
    pub column: Option<usize>,
    /// In characters.
    pub width: Option<usize>,
    pub remedy: Option<&'c str>,
}

impl<'c> DiagnosticJson<'c> {
    pub fn new(diagnostic: &'c Diagnostic) -> Self {
        let place = diagnostic.place;
        Self {
            code: diagnostic.code.number(),
            severity: diagnostic.severity.to_string(),
            message: &diagnostic.message,
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            width: place.map(|place| place.width),
            remedy: diagnostic.remedy.as_deref(),
        }
    }
}

impl<'c> PolicyCheckReport<'c> {
    pub fn new(file: &'c str, checked: &'c PolicyCheckOutcome) -> Self {
        let kind = match checked.kind {
            PolicyProcessKind::Gateway => "gateway",
            PolicyProcessKind::Guard => "guard",
        };
        let report = Self::for_unreadable(file, kind, &checked.diagnostics);
        let hints = checked.hints.iter().map(DiagnosticJson::new).collect();
        Self { hints, online: checked.online.as_deref(), ..report }
    }

    /// The report about a file that could not be checked.
    pub fn for_unreadable(file: &'c str, kind: &'static str, diagnostics: &'c [Diagnostic]) -> Self {
        let count = |severity| diagnostics.iter().filter(|one| one.severity == severity).count();
        let errors = count(Severity::Error);
        let warnings = count(Severity::Warning);
        let diagnostics = diagnostics.iter().map(DiagnosticJson::new).collect();
        let hints = Vec::new();
        let online = None;
        let request = None;
        Self { file, kind, good: errors == 0, errors, warnings, diagnostics, hints, online, request }
    }
}

/// All findings.
#[derive(Debug)]
pub struct PolicyCheckOutcome {
    pub kind: PolicyProcessKind,
    /// By place in the file. Findings outside of the file come last.
    pub diagnostics: Vec<Diagnostic>,
    /// Remarks about parts that are no mistake, by place in the file.
    pub hints: Vec<Diagnostic>,
    /// The observed facts; `None` without an online check.
    pub online: Option<Vec<OnlineCheckFinding>>,
}

#[cfg(test)]
mod tests {
    use fencegate_policies::diagnostics::{DiagnosticCode, SourceSpan};

    use super::*;

    /// Warnings are counted, and leave a file good; one error does not.
    #[test]
    fn only_errors_make_file_bad() {
        let place = SourceSpan { line: 2, column: 3, width: 4 };
        let error =
            Diagnostic::new(DiagnosticCode::NoEnsemble, "no session").at(place).with_remedy("start it");
        let warning = Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::new(DiagnosticCode::NoEndpoint, "one is away")
        };
        let checked = |diagnostics| PolicyCheckOutcome {
            kind: PolicyProcessKind::Guard,
            diagnostics,
            hints: Vec::new(),
            online: None,
        };
        let outcome = checked(vec![warning.clone()]);
        let report = PolicyCheckReport::new("guard.yaml", &outcome);
        assert!(report.good && report.kind == "guard");
        assert_eq!((report.errors, report.warnings), (0, 1));
        let outcome = checked(vec![error, warning]);
        let report = PolicyCheckReport::new("guard.yaml", &outcome);
        assert!(!report.good);
        assert_eq!((report.errors, report.warnings), (1, 1));
        let [first, second] = &*report.diagnostics else { panic!("two findings") };
        assert_eq!((first.line, first.column, first.width), (Some(2), Some(3), Some(4)));
        assert_eq!((first.remedy, second.line, second.remedy), (Some("start it"), None, None));
    }
}
