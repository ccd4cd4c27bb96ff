//! All that has been found of a file and of what it leads to.

use fencegate_policies::{diagnose::Diagnostic, file::Kind};

use super::findings::Fact;

/// What has been found.
#[derive(Debug)]
pub struct Checked {
    pub kind: Kind,
    /// By place; those of what the file leads to come last.
    pub diagnostics: Vec<Diagnostic>,
    /// What was seen on the way; `None` where nobody went.
    pub online: Option<Vec<Fact>>,
}
