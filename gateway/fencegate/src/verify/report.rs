//! What came of all cases, and the ways of telling it.

pub mod json;
pub mod junit;
pub mod text;

use std::time::Duration;

use super::{
    case::Case,
    verdict::{Event, Verdict},
};

/// What came of one case.
#[derive(Debug)]
pub struct Entry {
    pub case: &'static Case,
    pub verdict: Verdict,
    pub events: Vec<Event>,
    pub took: Duration,
}

/// What came of all of them.
#[derive(Debug)]
pub struct Report {
    pub entries: Vec<Entry>,
    pub took: Duration,
}

/// How many of each.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub undecided: usize,
    pub skipped: usize,
}

impl Entry {
    pub fn skipped(case: &'static Case, why: String) -> Self {
        Self { case, verdict: Verdict::Skipped(why), events: Vec::new(), took: Duration::ZERO }
    }
}

impl Report {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for entry in &self.entries {
            *match entry.verdict {
                Verdict::Passed(_) => &mut counts.passed,
                Verdict::Failed(_) => &mut counts.failed,
                Verdict::Undecided(_) => &mut counts.undecided,
                Verdict::Skipped(_) => &mut counts.skipped,
            } += 1;
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, undecided, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {undecided} undecided, {skipped} skipped")
    }
}
