//! A key generation: the time in which the resources of one service keep their keys. It counts the service's fenced
//! requests.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// A key generation, and whether its requests may begin. Plans that leave the keys unchanged share it.
#[derive(Debug)]
pub struct KeyRulesDrainGate {
    running: TaskTracker,
    open: watch::Sender<bool>,
}

/// Counts a fenced request, from the moment at which its plan is known until no part of it runs any more.
pub type RunningRequestGuard = TaskTrackerToken;

/// Opens a key generation once the generations before it have ended.
#[derive(Debug)]
pub struct PendingKeyRulesGeneration {
    generation: Arc<KeyRulesDrainGate>,
    predecessors: Vec<Arc<KeyRulesDrainGate>>,
}

impl KeyRulesDrainGate {
    /// A generation without a predecessor, open at once.
    pub(crate) fn new_open() -> Arc<Self> {
        Self::new(true)
    }

    /// A generation whose requests wait until the requests of the former generations have ended.
    pub(crate) fn new_after(before: Vec<Arc<Self>>) -> (Arc<Self>, PendingKeyRulesGeneration) {
        let term = Self::new(false);
        let opening = PendingKeyRulesGeneration { generation: term.clone(), predecessors: before };
        (term, opening)
    }

    fn new(open: bool) -> Arc<Self> {
        Arc::new(Self { running: TaskTracker::new(), open: watch::Sender::new(open) })
    }

    pub fn track_request(&self) -> RunningRequestGuard {
        self.running.token()
    }

    pub fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Returns when all requests that began under other keys have ended.
    pub async fn wait_open(&self) {
        // The sender is a field of this generation, so the wait cannot fail.
        self.open.subscribe().wait_for(|open| *open).await.ok();
    }

    /// True if no request runs in this generation, nor in the generations before it.
    pub fn is_drained(&self) -> bool {
        self.is_open() && self.running.is_empty()
    }

    /// Returns when no request runs in this generation any more, nor in the generations before it.
    pub async fn wait_requests_finished(&self) {
        self.wait_open().await;
        self.running.close();
        self.running.wait().await;
    }
}

/// Removes duplicates, so that each generation occurs once.
pub(super) fn dedup_generations(
    terms: impl Iterator<Item = Arc<KeyRulesDrainGate>>,
) -> Vec<Arc<KeyRulesDrainGate>> {
    let mut terms: Vec<Arc<KeyRulesDrainGate>> = terms.collect();
    terms.sort_unstable_by_key(Arc::as_ptr);
    terms.dedup_by_key(|term| Arc::as_ptr(term));
    terms
}

impl PendingKeyRulesGeneration {
    /// Returns when all former generations have ended. Must be called when no worker accepts requests in them any
    /// more.
    pub async fn wait_predecessors(&self) {
        for before in &self.predecessors {
            before.wait_requests_finished().await;
        }
    }

    pub fn open(self) {
        self.generation.open.send_replace(true);
    }
}
