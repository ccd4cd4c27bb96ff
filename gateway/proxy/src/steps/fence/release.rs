//! Releases a lock at the end of its exchange. Without a report of that end, the upstream may still be at work, and the
//! lock is kept: see [`abandoned`].

mod abandoned;

use std::rc::Rc;

use bytes::Bytes;
use fencegate_idempotency::{OperationOutcome, OperationPermit};
use fencegate_process::{clock::SharedClock, key_redaction};
use fencegate_refusal::{DispatchOutcome, Refusal};
use hyper::{StatusCode, http::response::Parts};
use tracing::warn;

pub(super) use self::abandoned::AbandonedHoldPolicy;
use self::abandoned::ExchangeEnd;
use super::held_lock::HeldLock;
use crate::{
    request_context::{RequestContext, UpstreamExchange},
    steps::{answer::ExchangeObserver, forward::wait_lock_lost},
};

/// Releases the lock when it is dropped, or later where the upstream must get its time first. A panic of the task that
/// works for the request drops it as well, so the same rules apply.
pub(super) struct LockReleaseGuard {
    held: Rc<HeldLock>,
    policy: AbandonedHoldPolicy,
    clock: SharedClock,
    /// The record of the operation, where ZooKeeper stores operations.
    record: Option<OperationPermit>,
    exchange: Rc<UpstreamExchange>,
    /// Keeps the count of the request as in flight until its answer came.
    _context: Rc<RequestContext>,
    end: ExchangeEnd,
}

impl LockReleaseGuard {
    pub(super) fn new(
        held: &Rc<HeldLock>,
        policy: AbandonedHoldPolicy,
        clock: SharedClock,
        record: Option<OperationPermit>,
        exchange: &Rc<UpstreamExchange>,
        context: &Rc<RequestContext>,
    ) -> Self {
        let held = held.clone();
        let exchange = exchange.clone();
        Self { held, policy, clock, record, exchange, _context: context.clone(), end: ExchangeEnd::Abandoned }
    }

    pub(super) async fn on_refused(mut self, refusal: &Refusal) {
        self.end = match refusal.outcome() {
            DispatchOutcome::NotDispatched => ExchangeEnd::Undispatched,
            DispatchOutcome::Done | DispatchOutcome::Replayed | DispatchOutcome::Unknown => {
                ExchangeEnd::Broken
            }
        };
        let record = self.record.take();
        // The guard is dropped before the record is written: during that wait the connection may carry another
        // exchange, whose gate the guard must not read.
        drop(self);
        if let (Some(record), DispatchOutcome::NotDispatched) = (record, refusal.outcome()) {
            record.complete(OperationOutcome::NotExecuted).await;
        }
    }
}

impl ExchangeObserver for LockReleaseGuard {
    async fn wait_should_give_up(&self) {
        wait_lock_lost(Some(self.held.tenure.permission()), self.policy.level, &self.clock).await;
        AbandonedHoldPolicy::shut_gate_after_lock_loss(&self.held, &self.exchange);
    }

    async fn on_complete(mut self, head: &Parts, _: Option<&Bytes>) {
        let answer = self.exchange.answer();
        if answer.is_inconclusive {
            // The record of the operation is dropped without a report, so its outcome stays unknown.
            self.end = ExchangeEnd::Unfinished;
            self.held.tenure.retire();
            let token = self.exchange.token().map(|token| token.to_string());
            warn!(keys = self.keys(), token, status = head.status.as_u16(), "answer.unfinished");
            return;
        }
        self.end = ExchangeEnd::Complete;
        if let Some(record) = self.record.take() {
            // The outcome is recorded before the key is released, so that the next holder finds it.
            record_response(record, head.status, answer.retires_grant).await;
        }
        if !answer.retires_grant {
            self.held.tenure.mark_upstream_settled();
        }
    }

    /// The drop retires the tenure, because the end of the execution was not reported.
    fn on_response_broken(mut self) {
        self.end = ExchangeEnd::Broken;
    }

    /// The drop keeps the key closed until the upstream has had its time.
    fn on_locally_aborted(self) {}

    fn keys(&self) -> String {
        key_redaction::redact_keys(&self.held.keys)
    }
}

impl Drop for LockReleaseGuard {
    fn drop(&mut self) {
        self.policy.keep_until_safe(&self.held, &self.exchange, self.end, self.clock.now());
    }
}

/// Records the outcome after the upstream has answered in full. If `refused`, the upstream has reported that the token
/// was stale and that it did nothing.
async fn record_response(record: OperationPermit, status: StatusCode, refused: bool) {
    let outcome = if refused {
        Some(OperationOutcome::NotExecuted)
    } else {
        record.outcome_for_status(status.as_u16())
    };
    // If [`OperationPermit::complete`] is not called, the outcome stays unknown.
    if let Some(outcome) = outcome {
        record.complete(outcome).await;
    }
}
