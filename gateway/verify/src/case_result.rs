//! The result of a case, and the events on the way.

use serde::Serialize;

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseResult {
    Passed(PassStrength),
    Failed(String),
    /// No fault was seen, but the case did not prove that there is none.
    Undecided(String),
    Skipped(String),
}

/// How strong a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassStrength {
    /// Answers and effects agree.
    Effects,
    /// Only the answers of the service were seen.
    Answers,
}

/// A case has not passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaseError {
    Failed(String),
    Undecided(String),
}

/// One step of a case, as the report shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseStepRecord {
    pub sent: String,
    pub came: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl CaseError {
    pub(crate) fn failed<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Failed(reason.into()))
    }

    pub(crate) fn undecided<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Undecided(reason.into()))
    }
}

impl CaseResult {
    pub(crate) fn from_outcome(outcome: Result<(), CaseError>, strength: PassStrength) -> Self {
        match outcome {
            Ok(()) => Self::Passed(strength),
            Err(CaseError::Failed(reason)) => Self::Failed(reason),
            Err(CaseError::Undecided(reason)) => Self::Undecided(reason),
        }
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "failed",
            Self::Undecided(_) => "undecided",
            Self::Skipped(_) => "skipped",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed(_) => None,
            Self::Failed(reason) | Self::Undecided(reason) | Self::Skipped(reason) => Some(reason),
        }
    }
}
