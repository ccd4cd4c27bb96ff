//! The times of a guard, and what it keeps.

use std::time::Duration;

use fencegate_policies::plan;

/// The times of a guard, and what it keeps.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How long a newer tenure waits for older executions.
    pub settle: Duration,
    /// How long after its last byte an execution without a seen end counts as over.
    pub max_execution: Duration,
    /// A dispatch is sent within this time after its admission, or not at all.
    pub send_within: Duration,
    /// The marks of keys that were not used for this time are forgotten, and raise the floor.
    pub evict_after: Duration,
    pub enforce: plan::Enforce,
    pub journal: plan::Journal,
}

/// The most keys that are remembered. Beyond that the longest unused ones are forgotten early.
pub(crate) const MOST_KEYS: usize = 1_000_000;

/// The rules of a policy that sets none.
impl Default for Rules {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            max_execution: Duration::from_secs(30),
            send_within: Duration::from_secs(5),
            evict_after: Duration::from_secs(3600),
            enforce: plan::Enforce::Refuse,
            journal: plan::Journal {
                keep: Duration::from_secs(86_400),
                max_body: 64 << 10,
                most: 1 << 30,
                final_statuses: Vec::new(),
                probe: None,
            },
        }
    }
}

impl Rules {
    /// The rules of a policy.
    pub fn of(plan: &plan::Guard) -> Self {
        Self {
            settle: plan.settle,
            max_execution: plan.max_execution,
            send_within: plan.send_within,
            evict_after: plan.evict_after,
            enforce: plan.enforce,
            journal: plan.journal.clone(),
        }
    }
}
