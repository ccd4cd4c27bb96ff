//! The methods of a slot for the task of its key: the next request, and the end of the tenure.

use std::sync::Arc;

use fencegate_process::clock::BootInstant;
use fencegate_recipe::grant::LockGrant;
use fencegate_zookeeper::{
    session::registry::Evictable,
    tenure_end::{TenureEnd, TenureEndCause},
};

use super::{FirstWaitingRequest, KeySlot};
use crate::manager::lock_request::LockWaitPlace;
use crate::manager::queue::TenureDecision;

impl KeySlot {
    /// Returns when the state of the slot may have changed.
    pub(in crate::manager) async fn wait_changed(&self) {
        self.look.notified().await;
    }

    /// The parameters of the first waiting request; `None` when no request waits.
    pub(in crate::manager) fn first_waiting_request(&self) -> Option<FirstWaitingRequest> {
        let mut entry = self.lock_state();
        entry.queue.remove_gone(|caller| caller.answer.is_closed());
        let outdated = entry.outdated;
        let (mode, caller) = entry.queue.first_waiting()?;
        Some(FirstWaitingRequest { mode, rules: caller.rules, delay: caller.delay, outdated })
    }

    pub(in crate::manager) fn set_granted(self: &Arc<Self>, grant: LockGrant, wanted: FirstWaitingRequest) {
        let FirstWaitingRequest { mode, rules, outdated, .. } = wanted;
        let mut entry = self.lock_state();
        entry.standing.mark_granted();
        // If requests of this gateway may be forwarded, peers may forward their requests here in turn.
        let reached = entry.queue.waiting_requests().any(|(.., caller)| caller.waits != LockWaitPlace::Here);
        entry.queue.set_grant(grant, mode, rules, reached, self.clock.now());
        if entry.outdated != outdated {
            // The node was created before keys changed. A request under another key of the resource may have a larger
            // token by now.
            entry.queue.close(TenureEndCause::Reloaded);
        }
        drop(entry);
        self.start_waiting_requests();
    }

    /// Records that a remote contender waits. `looks`: it may be there only to find the holder.
    pub(in crate::manager) fn mark_contended(&self, looks: bool) {
        let mut entry = self.lock_state();
        entry.queue.mark_contended(self.clock.now());
        if !looks {
            entry.queue.end_contention_grace();
        }
    }

    /// Records that the remote contender has gone: requests that waited because of it start at once.
    pub(in crate::manager) fn clear_contended(self: &Arc<Self>) {
        self.lock_state().queue.clear_contended();
        self.start_waiting_requests();
    }

    /// Closes the tenure, and also the next tenure if its node waits already.
    pub(super) fn close_held_and_pending(&self) {
        let mut entry = self.lock_state();
        entry.queue.close(TenureEndCause::Reloaded);
        entry.outdated += 1;
        drop(entry);
        self.look.notify_one();
    }

    /// Closes the tenure: nothing more is started under it.
    pub(in crate::manager) fn close(&self, cause: TenureEndCause) {
        self.lock_state().queue.close(cause);
    }

    /// Records that another client removed the lock node.
    pub(in crate::manager) fn mark_node_removed(&self) {
        let mut entry = self.lock_state();
        entry.queue.close(TenureEndCause::TakenAway);
        if let Some(grant) = entry.queue.credentials() {
            grant.validity.revoke();
        }
    }

    pub(in crate::manager) fn next_action(&self) -> TenureDecision {
        self.lock_state().queue.next_action(self.clock.now())
    }

    /// Takes the tenure out of the slot if it is due to end, in one step, so that nothing can be started in between.
    /// Returns whether no tenure is left.
    pub(in crate::manager) fn end_tenure_if_due(&self, told: impl FnOnce(TenureEnd)) -> bool {
        let now = self.clock.now();
        let mut entry = self.lock_state();
        let ends = entry.queue.next_action(now) == TenureDecision::End;
        if ends && let Some(ended) = entry.queue.take_idle_tenure(now) {
            told(ended);
        }
        ends
    }
}

impl Evictable for KeySlot {
    fn idle_since(&self) -> Option<BootInstant> {
        self.lock_state().queue.idle_since()
    }

    fn evict_if_idle(&self) -> bool {
        let evicted = self.lock_state().queue.evict();
        if evicted {
            self.look.notify_one();
        }
        evicted
    }
}
