//! The times of a guard, and what it keeps.

use std::time::Duration;

use fencegate_policies::plan;

/// The times of a guard, and what it keeps.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How long a newer tenure waits for older executions.
    pub settle: Duration,
    /// So long after its last byte, an execution whose end was not seen counts as over.
    pub max_execution: Duration,
    /// Nothing is sent later than this after its admission.
    pub send_within: Duration,
    /// Marks of keys that nobody used for so long give way to the floor.
    pub evict_after: Duration,
    pub enforce: plan::Enforce,
    pub journal: plan::Journal,
}

/// Keys that are remembered at most; beyond, the longest unused are forgotten early.
pub(crate) const MOST_KEYS: usize = 1_000_000;

/// As a file without them has them.
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
    /// As a file has them.
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
