//! The queue of a key, shared by all workers. If a cached key is free, a worker grants it here, without any other
//! thread.

mod forwarding;
mod remote_position;
pub mod table;
mod task_api;

use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    plan::{CachedHoldLimits, LockLocation, LockMode},
    token::FencingToken,
};
use fencegate_process::{
    clock::{BootInstant, SharedClock},
    sync::{Mutex, MutexGuard},
};
use fencegate_recipe::grant::LockGrant;
use fencegate_zookeeper::error::GrantError;
use tokio::sync::{Notify, oneshot};

use self::remote_position::ZkQueuePosition;
use super::{
    call_chain::NestedCallbackError,
    grant_guard::{GrantGuard, MultiRequestLock},
    held_lock::HeldLockView,
    lock_request::LockWaitPlace,
    queue::{GrantedLockRequest, LockQueue, QueueArrivalOutcome, QueueJoinPolicy},
};

/// The answer to a waiting request.
pub(crate) type LockReply = Result<GrantGuard, GrantError>;

/// The slot of one key: its queue, and the state that workers and its task share.
pub(crate) struct KeySlot {
    pub key: ResourceKey,
    /// The site of its lock.
    pub site: LockLocation,
    queue: Mutex<KeySlotState>,
    /// Wakes the task of the key, so that it checks the state again.
    look: Notify,
    clock: SharedClock,
}

#[derive(Default)]
struct KeySlotState {
    queue: LockQueue<LocalWaiter, LockGrant>,
    /// The route of the request that was started last, for operators.
    route: Option<Arc<str>>,
    /// Whether the slot was taken out of the table. A caller that still has this slot must then look up the key in the
    /// table again.
    removed: bool,
    standing: ZkQueuePosition,
    /// Counts the reloads after which both a held and a waiting lock node are too old to be used.
    outdated: u64,
}

struct LocalWaiter {
    answer: oneshot::Sender<LockReply>,
    route: Arc<str>,
    rules: CachedHoldLimits,
    patience: QueueJoinPolicy,
    waits: LockWaitPlace,
    delay: Option<Duration>,
}

/// The parameters of a local request for a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalLockRequest<'a> {
    pub mode: LockMode,
    pub rules: CachedHoldLimits,
    pub patience: QueueJoinPolicy,
    pub waits: LockWaitPlace,
    /// See [`crate::manager::lock_request::LockRequest`].
    pub delay: Option<Duration>,
    pub route: &'a Arc<str>,
}

/// The parameters of the first waiting request.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstWaitingRequest {
    pub(super) mode: LockMode,
    rules: CachedHoldLimits,
    pub(super) delay: Option<Duration>,
    /// The value of `KeySlotState::outdated` at the beginning of the attempt. If it has grown by the grant, the node is
    /// too old to be used.
    outdated: u64,
}

/// The immediate result of a request for a key.
pub(crate) enum EnterLocalQueueOutcome {
    Started(GrantGuard),
    /// The request waits for the answer. `attend`: a task has to be started for the key.
    Waiting {
        answer: oneshot::Receiver<LockReply>,
        place: QueuedRequestGuard,
        attend: Option<Arc<KeySlot>>,
    },
    QueueFull,
    Busy,
    /// The request may wait only at the holder of the key, and this gateway is not the holder.
    NotHolder,
}

impl KeySlotState {
    /// Records that a request waits that may be forwarded. Returns whether the task that waits for the lock has to look
    /// up the route now.
    fn request_holder_lookup(&mut self, now: BootInstant) -> bool {
        self.queue.credentials().is_none() && self.standing.request_holder_lookup(now)
    }

    /// Records that a request of this route was started. The clone of the `Arc` is left out if the route is the same as
    /// before, so that workers do not contend for its count.
    fn set_policy_route(&mut self, route: &Arc<str>) {
        if !self.route.as_ref().is_some_and(|known| Arc::ptr_eq(known, route)) {
            self.route = Some(route.clone());
        }
    }
}

/// A poisoned lock does no harm: no panic between lock and unlock can leave a queue half changed.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A snapshot of one key.
pub(super) struct KeySlotSnapshot<'a> {
    pub(super) held: Option<HeldLockView<'a, LockGrant>>,
    pub(super) route: Option<&'a Arc<str>>,
    pub(super) waiting: &'a mut dyn ExactSizeIterator<Item = (LockMode, BootInstant, &'a Arc<str>)>,
    /// Whether a remote holder was ahead at the last check.
    pub(super) elsewhere: bool,
    /// The rest of a handover delay.
    pub(super) rest: Option<Duration>,
}

impl fmt::Debug for KeySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("key", &self.key).finish_non_exhaustive()
    }
}

impl KeySlot {
    fn new(key: ResourceKey, site: LockLocation, clock: SharedClock) -> Self {
        let queue = Mutex::new(KeySlotState::default());
        Self { key, site, queue, look: Notify::new(), clock }
    }

    fn lock_state(&self) -> MutexGuard<'_, KeySlotState> {
        unpoisoned(&self.queue)
    }

    fn enter_queue(self: &Arc<Self>, wants: LocalLockRequest<'_>) -> EnterLocalQueueOutcome {
        let LocalLockRequest { mode, rules, patience, waits, delay, route } = wants;
        let now = self.clock.now();
        let mut entry = self.lock_state();
        let mut answer = None;
        debug_assert!(!entry.removed, "removed under the table's lock");
        if waits == LockWaitPlace::AtHolder && !self.accepts_forwarded(&entry, now) {
            return EnterLocalQueueOutcome::NotHolder;
        }
        if matches!(patience, QueueJoinPolicy::QueueBehind(most) if entry.queue.waiting_count() >= most) {
            // Requests whose callers have gone must not take up queue capacity.
            entry.queue.remove_gone(|caller| caller.answer.is_closed());
        }
        let arrival = entry.queue.arrive(
            mode,
            patience,
            now,
            |grant| grant.validity.is_valid_at(now),
            || {
                let (sender, receiver) = oneshot::channel();
                answer = Some(receiver);
                LocalWaiter { answer: sender, route: route.clone(), rules, patience, waits, delay }
            },
        );
        match (arrival, answer) {
            (QueueArrivalOutcome::Start(started), _) => {
                entry.set_policy_route(route);
                EnterLocalQueueOutcome::Started(self.grant_guard(started))
            }
            (QueueArrivalOutcome::Wait { attend }, Some(answer)) => {
                // While the key is held here, no request is forwarded, so no route is looked up.
                let asks = waits == LockWaitPlace::Anywhere && entry.request_holder_lookup(now);
                if asks || entry.queue.needs_task_wakeup(now) {
                    self.look.notify_one();
                }
                let attend = attend.then(|| self.clone());
                EnterLocalQueueOutcome::Waiting {
                    answer,
                    place: QueuedRequestGuard { slot: self.clone() },
                    attend,
                }
            }
            (QueueArrivalOutcome::Full, _) => EnterLocalQueueOutcome::QueueFull,
            (QueueArrivalOutcome::Busy | QueueArrivalOutcome::Wait { .. }, _) => EnterLocalQueueOutcome::Busy,
        }
    }

    /// Whether a request from another gateway may wait here. It may while an open exclusive tenure is held, and also
    /// while this gateway gets the lock with no contender ahead: the other gateway may read the lock node before this
    /// gateway has seen that the node holds.
    fn accepts_forwarded(&self, entry: &KeySlotState, now: BootInstant) -> bool {
        match entry.queue.held_lock() {
            Some(held) => {
                held.mode == LockMode::Exclusive && !held.closed && held.credentials.validity.is_valid_at(now)
            }
            None => entry.queue.has_task() && entry.standing.has_no_remote_ahead(),
        }
    }

    fn grant_guard(self: &Arc<Self>, started: GrantedLockRequest<LockGrant>) -> GrantGuard {
        GrantGuard::for_cached(started.credentials, started.number, self.clone())
    }

    // ---- for operators

    /// Shows the state of the key. The key is locked during the call, so `look` has to be quick.
    pub(super) fn with_snapshot<R>(&self, look: impl FnOnce(KeySlotSnapshot<'_>) -> R) -> R {
        let entry = self.lock_state();
        let waiting =
            entry.queue.waiting_requests().map(|(mode, since, caller)| (mode, since, &caller.route));
        look(KeySlotSnapshot {
            held: entry.queue.held_lock(),
            route: entry.route.as_ref(),
            waiting: &mut { waiting },
            elsewhere: entry.standing.is_behind_remote(),
            rest: entry.standing.remaining_grant_delay(self.clock.now()),
        })
    }

    /// Starts the waiting requests that may start, in order, and wakes the key's task if it has something to do.
    pub(super) fn start_waiting_requests(self: &Arc<Self>) {
        let now = self.clock.now();
        loop {
            let mut entry = self.lock_state();
            entry.queue.remove_gone(|caller| caller.answer.is_closed());
            let Some((caller, started)) =
                entry.queue.start_next(now, |grant| grant.validity.is_valid_at(now))
            else {
                if entry.queue.needs_task_wakeup(now) {
                    self.look.notify_one();
                }
                return;
            };
            entry.set_policy_route(&caller.route);
            // The answer is sent after the mutex is released: if the caller has just gone, its tenure is dropped here,
            // and that takes the mutex.
            drop(entry);
            caller.answer.send(Ok(self.grant_guard(started))).ok();
        }
    }
}

impl MultiRequestLock for KeySlot {
    fn next_dispatch_number(&self, first: u32) -> Option<u32> {
        self.lock_state().queue.next_dispatch_number(first)
    }

    fn start_callback(
        self: Arc<Self>,
        from: FencingToken,
        mode: LockMode,
    ) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
        let now = self.clock.now();
        let mut entry = self.lock_state();
        let held = entry.queue.held_lock().ok_or(NestedCallbackError::NotHeld)?;
        let LockGrant { epoch, sequence, .. } = held.credentials;
        if (*epoch, *sequence) != (from.number(), from.sequence()) {
            return Err(NestedCallbackError::NotHeld);
        }
        let mode_held = held.mode;
        let started =
            entry.queue.start_callback(from.dispatch(), mode, |grant| grant.validity.is_valid_at(now))?;
        drop(entry);
        Ok((self.grant_guard(started), mode_held))
    }

    fn retire(&self) {
        self.lock_state().queue.mark_outcome_unknown();
    }

    fn finish_request(self: Arc<Self>, first: u32, known: bool) {
        let now = self.clock.now();
        {
            let mut entry = self.lock_state();
            if !known {
                entry.queue.mark_outcome_unknown();
            }
            entry.queue.finish_request(first, now);
        }
        self.start_waiting_requests();
    }
}

/// The place of one waiting request, which leaves the queue on drop. If a tenure was granted at the same moment, it is
/// released when the answer is dropped.
pub(crate) struct QueuedRequestGuard {
    slot: Arc<KeySlot>,
}

impl Drop for QueuedRequestGuard {
    fn drop(&mut self) {
        let anybody = self.slot.lock_state().queue.remove_gone(|caller| caller.answer.is_closed());
        if !anybody {
            self.slot.look.notify_one();
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;

#[cfg(test)]
mod tests;
