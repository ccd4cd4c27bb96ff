//! What came of a case, and what was seen on the way.

use serde::Serialize;

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseResult {
    Passed(Proof),
    Failed(String),
    /// Nothing wrong was seen, and it was not shown that nothing is.
    Undecided(String),
    Skipped(String),
}

/// What a pass is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// Answers and effects agree.
    Effects,
    /// The service says so.
    Answers,
}

/// Why a case has not passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    Failed(String),
    Undecided(String),
}

/// One thing that was done, as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    pub sent: String,
    pub came: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Wrong {
    pub fn failed<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Failed(why.into()))
    }

    pub fn undecided<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Undecided(why.into()))
    }
}

impl CaseResult {
    pub fn of(outcome: Result<(), Wrong>, proof: Proof) -> Self {
        match outcome {
            Ok(()) => Self::Passed(proof),
            Err(Wrong::Failed(why)) => Self::Failed(why),
            Err(Wrong::Undecided(why)) => Self::Undecided(why),
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "failed",
            Self::Undecided(_) => "undecided",
            Self::Skipped(_) => "skipped",
        }
    }

    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Passed(_) => None,
            Self::Failed(why) | Self::Undecided(why) | Self::Skipped(why) => Some(why),
        }
    }
}
