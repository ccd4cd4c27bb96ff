//! Decides which waiting requests leave while another gateway or program holds their key.

use fencegate_process::clock::BootInstant;
use fencegate_recipe::grant::LockAttemptError;
use fencegate_zookeeper::{error::GrantError, peer_endpoint::HolderRoute, tenure_end::TenureEndCause};

use super::{KeySlot, LocalWaiter};
use crate::manager::lock_request::LockWaitPlace;
use crate::manager::queue::QueueJoinPolicy;

impl KeySlot {
    /// Records that another holder is ahead. Requests leave that do not wait, or that wait only for this gateway's own
    /// tenure. Requests that may be forwarded stay until the route is known. Returns an error when no request is left.
    pub(in crate::manager) fn report_holder_ahead(&self) -> Result<(), LockAttemptError> {
        let mut entry = self.lock_state();
        let sent_here = entry.queue.remove_waiting_where(|caller| caller.waits == LockWaitPlace::AtHolder);
        let impatient = entry.queue.remove_waiting_where(|caller| {
            caller.patience == QueueJoinPolicy::NoWait && caller.waits != LockWaitPlace::Anywhere
        });
        let asks = entry.queue.waiting_requests().any(|(.., caller)| caller.waits == LockWaitPlace::Anywhere);
        entry.standing.mark_behind_remote(asks);
        let left = entry.queue.waiting_count();
        drop(entry);
        refuse_all(sent_here, &GrantError::NotHolder);
        refuse_all(impatient, &GrantError::Locked);
        if left == 0 { Err(LockAttemptError::CallerGone) } else { Ok(()) }
    }

    /// Records that there is no other holder, but a delay until `until`. Requests that do not wait leave. The delay
    /// goes on even if no request is left.
    pub(in crate::manager) fn report_delay(&self, until: BootInstant) {
        self.lock_state().standing.set_grant_delay(until);
        let rest = until.since(self.clock.now());
        self.refuse_waiters_where(
            |caller| caller.patience == QueueJoinPolicy::NoWait,
            &GrantError::Delayed(rest),
        )
        .ok();
    }

    /// Resets the position before the gateway queues anew: the contenders ahead are not known any more.
    pub(in crate::manager) fn reset_position(&self) {
        self.lock_state().standing.forget_contenders_ahead();
    }

    /// Records that the queue position is lost, so another contender may hold next. Requests that peers have forwarded
    /// here are refused at once, before this gateway has queued again.
    pub(in crate::manager) fn report_queue_position_lost(&self) {
        self.lock_state().standing.mark_lost();
        // All other requests stay and wait for the next grant.
        self.refuse_waiters_where(|caller| caller.waits == LockWaitPlace::AtHolder, &GrantError::NotHolder)
            .ok();
    }

    /// Whether a request has come that may be forwarded. Returns true once for each such request.
    pub(in crate::manager) fn take_holder_lookup_request(&self) -> bool {
        self.lock_state().standing.take_holder_lookup_request()
    }

    /// Forwards the requests that may be forwarded to the gateway that holds the key. Returns an error when no request
    /// is left.
    pub(in crate::manager) fn forward_waiting(&self, route: &HolderRoute) -> Result<(), LockAttemptError> {
        self.refuse_waiters_where(
            |caller| caller.waits == LockWaitPlace::Anywhere,
            &GrantError::Elsewhere(route.clone()),
        )
    }

    /// Records that there is no gateway to forward to, so requests that do not wait leave. Returns an error when no
    /// request is left.
    pub(in crate::manager) fn report_no_route(&self) -> Result<(), LockAttemptError> {
        self.lock_state().standing.record_no_route(self.clock.now());
        self.refuse_waiters_where(|caller| caller.patience == QueueJoinPolicy::NoWait, &GrantError::Locked)
    }

    /// Refuses all waiting requests with this error, because no lock can be granted.
    pub(in crate::manager) fn refuse_waiting(&self, error: &GrantError) {
        self.refuse_waiters_where(|_| true, error).ok();
    }

    /// Handles a fault of the gateway: closes the tenure, and refuses all waiting requests with this error. Both
    /// happen under one mutex, so a request that comes after the end of the tenure is not refused.
    pub(in crate::manager) fn close_and_refuse_waiting(&self, error: &GrantError) {
        let leaving = {
            let mut entry = self.lock_state();
            entry.queue.close(TenureEndCause::Failed);
            // A grant may have been on its way to a request during the panic, so the outcome counts as unknown.
            entry.queue.mark_outcome_unknown();
            entry.queue.remove_waiting_where(|_| true)
        };
        refuse_all(leaving, error);
    }

    fn refuse_waiters_where(
        &self,
        leaves: impl Fn(&LocalWaiter) -> bool,
        error: &GrantError,
    ) -> Result<(), LockAttemptError> {
        let (leaving, left) = {
            let mut entry = self.lock_state();
            (entry.queue.remove_waiting_where(leaves), entry.queue.waiting_count())
        };
        refuse_all(leaving, error);
        if left == 0 { Err(LockAttemptError::CallerGone) } else { Ok(()) }
    }
}

/// Refuses the requests. Call this after the slot's mutex is released: a caller that has just gone leaves the queue
/// here, and that takes the mutex.
fn refuse_all(leaving: Vec<LocalWaiter>, error: &GrantError) {
    for caller in leaving {
        caller.answer.send(Err(error.clone())).ok();
    }
}
