//! A dispatch from its admission to its end, and executions whose end nobody saw.

use std::sync::Arc;

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::Token};
use fencegate_process::{
    clock::{Boot, Permission},
    failpoint,
};

use crate::{
    guard::Guard,
    operation::Kept,
    refused::Refused,
    register::{Claim, DispatchId, Ended, InDoubt, Seen},
    reserve::Reserved,
};

/// A dispatch that was let in. Whoever has it says how it ended; dropped without that word, its execution is in doubt.
pub struct Running {
    guard: Arc<Guard>,
    claim: Claim,
    id: DispatchId,
    reserved: Option<Reserved>,
    since: Boot,
    ended: bool,
}

/// The permission to send, which ends at a fixed instant and which nobody takes away before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until(pub Boot);

impl Permission for Until {
    fn holds(&self, now: Boot) -> bool {
        now < self.0
    }

    fn deadline(&self) -> Boot {
        self.0
    }
}

impl Running {
    /// `since`: when it was registered.
    pub(super) fn new(
        guard: Arc<Guard>,
        claim: Claim,
        id: DispatchId,
        reserved: Option<Reserved>,
        since: Boot,
    ) -> Self {
        guard.metrics.in_flight(1);
        Self { guard, claim, id, reserved, since, ended: false }
    }

    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The operation that it is.
    pub fn operation(&self) -> Option<OperationId> {
        self.reserved.as_ref().map(Reserved::id)
    }

    /// Bytes may leave until so long after the registration began: a guard that was stopped meanwhile sends nothing of
    /// what others take for over.
    pub fn permission(&self) -> Until {
        Until(self.since + self.guard.rules.send_within)
    }

    /// The upstream has answered in full. The key is free at once; the answer is remembered before this returns.
    ///
    /// # Errors
    /// It could not be written down: the operation's outcome will be told as unknown.
    pub async fn answered(mut self, answer: Kept) -> Result<(), Refused> {
        self.end(Ended::Known);
        let Some(reserved) = self.reserved.take() else { return Ok(()) };
        failpoint::pass("before_result_recorded");
        match reserved.finished(answer, &self.guard.rules.journal) {
            Some(change) => self.guard.durable(self.guard.committer.submit(vec![change])).await,
            None => Ok(()),
        }
    }

    /// Not one byte left for the upstream, and none will: the operation may run again.
    ///
    /// # Errors
    /// That could not be written down.
    pub async fn unsent(mut self) -> Result<(), Refused> {
        self.end(Ended::Known);
        let Some(reserved) = self.reserved.take() else { return Ok(()) };
        self.guard.durable(self.guard.committer.submit(vec![reserved.reservation.forgotten()])).await
    }

    /// Bytes left, the last of them at `last`, and no complete answer came.
    pub fn doubtful(mut self, last: Boot) {
        self.in_doubt(last);
        // Whoever repeats it now is told that nobody knows, instead of waiting for us.
        self.left();
    }

    /// Nobody will say what came of the operation.
    fn left(&mut self) {
        if self.reserved.take().is_some() {
            self.guard.metrics.operation("unknown");
        }
    }

    /// The store failed before anything was sent; nothing more will be written.
    pub(super) fn never_sent(mut self) {
        self.end(Ended::Known);
    }

    fn in_doubt(&mut self, last: Boot) {
        self.end(Ended::InDoubt { until: last + self.guard.rules.max_execution });
    }

    fn end(&mut self, ended: Ended) {
        if !std::mem::replace(&mut self.ended, true) {
            let now = self.guard.now();
            self.guard.lock().register.end(&self.claim, self.id, ended, now);
            self.guard.metrics.in_flight(-1);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A panic, or a task that was dropped: what it has sent is not known, and the gate shuts with it.
        if !self.ended {
            let now = self.guard.now();
            self.in_doubt(now);
            self.left();
        }
    }
}

impl Guard {
    /// Nothing goes on of what ran on these keys under this token: the upstream or an operator says so. Whether it was in
    /// doubt.
    pub fn over(&self, keys: &[ResourceKey], token: Token, how: &'static str) -> bool {
        let resolved = self.lock().register.resolve(keys, token, self.now());
        if resolved {
            self.metrics.doubt_resolved(how);
        }
        resolved
    }

    /// What is known of a key.
    pub fn seen(&self, key: &ResourceKey) -> Option<Seen> {
        self.lock().register.seen(key, self.now())
    }

    /// Every execution in doubt.
    pub fn doubts(&self) -> Vec<InDoubt> {
        self.lock().register.open_doubts(self.now())
    }
}
