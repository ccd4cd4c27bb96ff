//! Reads a policy file, and says all that is wrong with it at once.

use crate::{diagnose::Diagnostic, plan::Plan};

/// What came out of a file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// `Some` if and only if no diagnostic is an error.
    pub plan: Option<Plan>,
    /// By line.
    pub diagnostics: Vec<Diagnostic>,
}
