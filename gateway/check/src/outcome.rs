//! All findings about a file, and about the services that it names.

use fencegate_policies::{diagnostics::Diagnostic, file::PolicyFileKind};

use super::findings::Finding;

/// All findings.
#[derive(Debug)]
pub struct PolicyCheckOutcome {
    pub kind: PolicyFileKind,
    /// By place in the file. Findings outside of the file come last.
    pub diagnostics: Vec<Diagnostic>,
    /// What is no mistake, by place in the file.
    pub hints: Vec<Diagnostic>,
    /// The observed facts; `None` without an online check.
    pub online: Option<Vec<Finding>>,
}
