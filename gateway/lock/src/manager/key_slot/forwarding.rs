//! Decides which waiting requests leave while somebody else holds their key.

use fencegate_process::clock::BootInstant;

use super::{KeySlot, LocalWaiter};
use crate::manager::lock_request::WaitPlace;
use crate::{
    error::GrantError,
    manager::{queue::WaitLimit, tenure_end::EndCause},
    peer_endpoint::HolderRoute,
    recipe::grant::LockAttemptError,
};

impl KeySlot {
    /// Another holder is before us. Requests leave that do not wait, or that wait only for this gateway's own tenure.
    /// Requests that may be sent on stay until the way is known. An error when none is left.
    pub(in crate::manager) fn report_holder_ahead(&self) -> Result<(), LockAttemptError> {
        let mut entry = self.entry();
        let sent_here = entry.queue.dismiss(|caller| caller.waits == WaitPlace::AtHolder);
        let impatient = entry
            .queue
            .dismiss(|caller| caller.patience == WaitLimit::NoWait && caller.waits != WaitPlace::Anywhere);
        let asks = entry.queue.waiting_requests().any(|(.., caller)| caller.waits == WaitPlace::Anywhere);
        entry.standing.set_behind(asks);
        let left = entry.queue.waiting_count();
        drop(entry);
        reply_all(sent_here, &GrantError::NotHolder);
        reply_all(impatient, &GrantError::Locked);
        if left == 0 { Err(LockAttemptError::CallerGone) } else { Ok(()) }
    }

    /// Nobody else holds, but there is a delay until then. Requests that do not wait leave. The delay goes on even if
    /// none is left.
    pub(in crate::manager) fn report_delay(&self, until: BootInstant) {
        self.entry().standing.set_delay(until);
        let rest = until.since(self.clock.now());
        self.dismiss(|caller| caller.patience == WaitLimit::NoWait, &GrantError::Delayed(rest)).ok();
    }

    /// We are about to queue, so it is not known any more who is before us.
    pub(in crate::manager) fn reset_position(&self) {
        self.entry().standing.reset();
    }

    /// Our place in line is lost, and somebody else may hold next. Requests that other gateways have sent here are told
    /// so now, and not only when we have queued again.
    pub(in crate::manager) fn report_place_lost(&self) {
        self.entry().standing.mark_lost();
        // All other requests wait for our next turn.
        self.dismiss(|caller| caller.waits == WaitPlace::AtHolder, &GrantError::NotHolder).ok();
    }

    /// Whether a request has come that may be sent on. True once for each.
    pub(in crate::manager) fn take_route_request(&self) -> bool {
        self.entry().standing.take_route_request()
    }

    /// Another gateway keeps the key, so requests that may be sent there leave. An error when none is left.
    pub(in crate::manager) fn forward(&self, way: &HolderRoute) -> Result<(), LockAttemptError> {
        self.dismiss(|caller| caller.waits == WaitPlace::Anywhere, &GrantError::Elsewhere(way.clone()))
    }

    /// There is no gateway to send requests to, so those that do not wait leave. An error when none is left.
    pub(in crate::manager) fn report_no_route(&self) -> Result<(), LockAttemptError> {
        self.entry().standing.record_no_route(self.clock.now());
        self.dismiss(|caller| caller.patience == WaitLimit::NoWait, &GrantError::Locked)
    }

    /// No lock can be had, so all waiting requests are told why.
    pub(in crate::manager) fn refuse(&self, why: &GrantError) {
        self.dismiss(|_| true, why).ok();
    }

    /// A fault of the gateway: closes the tenure, and tells all waiting requests why. Both happen under one lock, so a
    /// request that comes after the end of the tenure is not refused.
    pub(in crate::manager) fn fail(&self, why: &GrantError) {
        let leaving = {
            let mut entry = self.entry();
            entry.queue.close(EndCause::Failed);
            // Whatever was on its way to a request during the panic counts as an unknown outcome.
            entry.queue.mark_unknown();
            entry.queue.dismiss(|_| true)
        };
        reply_all(leaving, why);
    }

    fn dismiss(
        &self,
        leaves: impl Fn(&LocalWaiter) -> bool,
        why: &GrantError,
    ) -> Result<(), LockAttemptError> {
        let (leaving, left) = {
            let mut entry = self.entry();
            (entry.queue.dismiss(leaves), entry.queue.waiting_count())
        };
        reply_all(leaving, why);
        if left == 0 { Err(LockAttemptError::CallerGone) } else { Ok(()) }
    }
}

/// Called outside of the slot's lock, because a caller that has just gone gives up its place in here.
fn reply_all(leaving: Vec<LocalWaiter>, why: &GrantError) {
    for caller in leaving {
        caller.answer.send(Err(why.clone())).ok();
    }
}
