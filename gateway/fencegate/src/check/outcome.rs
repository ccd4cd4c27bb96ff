//! Everything that was found about a file, and about the services that it names.

use fencegate_policies::{diagnostics::Diagnostic, file::FileKind};

use super::findings::Finding;

/// Everything that was found.
#[derive(Debug)]
pub struct CheckOutcome {
    pub kind: FileKind,
    /// By place. Findings outside of the file come last.
    pub diagnostics: Vec<Diagnostic>,
    /// The facts that were seen; `None` without an online check.
    pub online: Option<Vec<Finding>>,
}
