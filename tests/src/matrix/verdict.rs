//! The result of one run, and its stored form.

use serde_json::{Value, json};

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunVerdict {
    pub case: String,
    pub level: String,
    pub seed: u64,
    pub executions: usize,
    pub hand_overs: usize,
    pub stale: usize,
    /// The number of executions in flight at the accident.
    pub hit: usize,
    pub violations: usize,
    /// The time of recovery in seconds.
    pub recovery: Option<f64>,
    pub verdict: Verdict,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    Skipped,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Pass, Self::Fail, Self::Skipped].into_iter().find(|verdict| verdict.as_str() == word)
    }
}

impl RunVerdict {
    /// The stored form of the verdict.
    pub fn to_json(&self) -> Value {
        json!({
            "case": self.case, "level": self.level, "seed": self.seed,
            "executions": self.executions, "handovers": self.hand_overs, "stale_refused": self.stale,
            "hit": self.hit, "violations": self.violations, "recovery_s": self.recovery,
            "verdict": self.verdict.as_str(), "reason": self.reason,
        })
    }

    /// Reads a stored verdict; `None` if the value is not one.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let count = |name: &str| value[name].as_u64().and_then(|count| usize::try_from(count).ok());
        Some(Self {
            case: text("case")?,
            level: text("level")?,
            seed: value["seed"].as_u64()?,
            executions: count("executions")?,
            hand_overs: count("handovers")?,
            stale: count("stale_refused")?,
            hit: count("hit")?,
            violations: count("violations")?,
            recovery: value["recovery_s"].as_f64(),
            verdict: Verdict::of(&text("verdict")?)?,
            reason: text("reason")?,
        })
    }
}
