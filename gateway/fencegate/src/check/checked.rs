//! Everything that was found about a file, and about the services that it names.

use fencegate_policies::{diagnose::Diagnostic, file::Kind};

use super::findings::Fact;

/// Everything that was found.
#[derive(Debug)]
pub struct Checked {
    pub kind: Kind,
    /// By place. Findings outside of the file come last.
    pub diagnostics: Vec<Diagnostic>,
    /// The facts that were seen; `None` without an online check.
    pub online: Option<Vec<Fact>>,
}
