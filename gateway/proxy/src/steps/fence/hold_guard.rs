//! Keeps the hold of an exchange until its end is reported. Without a report, the upstream may still be at work.

use std::rc::Rc;

use bytes::Bytes;
use fencegate_idempotency::{OperationOutcome, OperationPermit};
use fencegate_process::{clock::SharedClock, key_redaction};
use fencegate_refusal::{DispatchOutcome, Refusal};
use hyper::http::response::Parts;
use tracing::warn;

use super::{
    abandoned::{AbandonedHoldPolicy, ExchangeEnd},
    operation,
    request_grant::RequestGrant,
};
use crate::{
    request_context::{Exchange, RequestContext},
    steps::{answer::ExchangeObserver, forward::wait_lock_lost},
};

/// The hold ends when this is dropped, or later, where the upstream must get its time first. A panic of the task that
/// works for the request drops it as well.
pub(super) struct LockHoldGuard {
    pub(super) hold: Rc<RequestGrant>,
    pub(super) terms: AbandonedHoldPolicy,
    pub(super) clock: SharedClock,
    /// The record of the operation, where ZooKeeper stores operations.
    pub(super) once: Option<OperationPermit>,
    pub(super) exchange: Rc<Exchange>,
    /// Counts the request as in flight until its answer is here.
    pub(super) _context: Rc<RequestContext>,
    pub(super) end: ExchangeEnd,
}

impl LockHoldGuard {
    pub(super) async fn on_refused(mut self, refusal: &Refusal) {
        self.end = match refusal.outcome() {
            DispatchOutcome::NotDispatched => ExchangeEnd::Undispatched,
            DispatchOutcome::Done | DispatchOutcome::Replayed | DispatchOutcome::Unknown => {
                ExchangeEnd::Broken
            }
        };
        let once = self.once.take();
        // Dropped before the wait: the connection may soon carry another exchange.
        drop(self);
        if let (Some(once), DispatchOutcome::NotDispatched) = (once, refusal.outcome()) {
            once.complete(OperationOutcome::NotExecuted).await;
        }
    }
}

impl ExchangeObserver for LockHoldGuard {
    async fn wait_should_give_up(&self) {
        wait_lock_lost(Some(self.hold.tenure.permission()), self.terms.level, &self.clock).await;
        AbandonedHoldPolicy::shut_gate_after_lock_loss(&self.hold, &self.exchange);
    }

    async fn on_complete(mut self, head: &Parts, _: Option<&Bytes>) {
        let answer = self.exchange.answer();
        if answer.is_inconclusive {
            // Dropped without a report, the record of the operation has an unknown outcome.
            self.end = ExchangeEnd::Unfinished;
            self.hold.tenure.retire();
            let token = self.exchange.token().map(|token| token.to_string());
            warn!(keys = self.keys(), token, status = head.status.as_u16(), "answer.unfinished");
            return;
        }
        self.end = ExchangeEnd::Complete;
        if let Some(once) = self.once.take() {
            // Recorded before the key is released, so that the next holder finds the outcome.
            operation::record_response(once, head.status, answer.retires_grant).await;
        }
        if !answer.retires_grant {
            self.hold.tenure.mark_settled();
        }
    }

    /// The tenure retires, because nothing was reported about the end.
    fn on_broken(mut self) {
        self.end = ExchangeEnd::Broken;
    }

    /// The key stays closed until the upstream has had its time.
    fn on_abandoned(self) {}

    fn keys(&self) -> String {
        key_redaction::redact_keys(&self.hold.keys)
    }
}

impl Drop for LockHoldGuard {
    fn drop(&mut self) {
        self.terms.keep_until_safe(&self.hold, &self.exchange, self.end, self.clock.now());
    }
}
