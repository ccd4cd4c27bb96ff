//! Counts the requests that have looked up their plan and are not counted under it yet.

use std::{cell::Cell, rc::Rc};

use tokio::sync::Notify;

/// Counts the requests of one pipeline that have looked it up and are not counted under its plan yet. In HTTP/2
/// other tasks run between the two, and a reload at that moment must still wait for these requests.
#[derive(Default)]
pub struct PipelineEntryCounter {
    requests: Cell<usize>,
    /// Notified when the last of these requests is counted under its plan or has ended.
    none: Notify,
}

/// Counts a request that has looked up its pipeline. It is dropped when the request is counted under the plan of
/// that pipeline, or ends.
pub struct PipelineEntryGuard(Rc<PipelineEntryCounter>);

impl PipelineEntryCounter {
    pub fn enter(self: &Rc<Self>) -> PipelineEntryGuard {
        self.requests.set(self.requests.get() + 1);
        PipelineEntryGuard(self.clone())
    }

    pub async fn wait_no_entering_requests(&self) {
        while self.requests.get() > 0 {
            self.none.notified().await;
        }
    }
}

impl Drop for PipelineEntryGuard {
    fn drop(&mut self) {
        let left = self.0.requests.get() - 1;
        self.0.requests.set(left);
        if left == 0 {
            self.0.none.notify_one();
        }
    }
}
