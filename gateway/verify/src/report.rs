//! The results of all cases, and their forms of output.

pub mod json;
pub mod junit;
pub mod text;

use std::time::Duration;

use super::{
    case::TestCase,
    case_result::{CaseResult, CaseStepRecord},
};

/// The result of one case.
#[derive(Debug)]
pub struct CaseReport {
    pub case: &'static TestCase,
    pub verdict: CaseResult,
    pub events: Vec<CaseStepRecord>,
    pub took: Duration,
}

/// The results of all cases.
#[derive(Debug)]
pub struct VerifyReport {
    pub entries: Vec<CaseReport>,
    pub took: Duration,
    /// A hint for the user, if the service has refused the first request, which was a good one.
    pub hint: Option<String>,
}

/// The number of cases with each result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CaseResultCounts {
    pub passed: usize,
    pub failed: usize,
    pub undecided: usize,
    pub skipped: usize,
}

impl CaseReport {
    pub fn skipped(case: &'static TestCase, reason: String) -> Self {
        Self { case, verdict: CaseResult::Skipped(reason), events: Vec::new(), took: Duration::ZERO }
    }
}

impl VerifyReport {
    pub fn counts(&self) -> CaseResultCounts {
        let mut counts = CaseResultCounts::default();
        for entry in &self.entries {
            *match entry.verdict {
                CaseResult::Passed(_) => &mut counts.passed,
                CaseResult::Failed(_) => &mut counts.failed,
                CaseResult::Undecided(_) => &mut counts.undecided,
                CaseResult::Skipped(_) => &mut counts.skipped,
            } += 1;
        }
        counts
    }
}

impl std::fmt::Display for CaseResultCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, undecided, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {undecided} undecided, {skipped} skipped")
    }
}
