//! The queue of one key in one gateway: the requests that wait for the key here, and the tenure. The code is pure: it
//! has no clock of its own, no task and no ZooKeeper.
//!
//! A tenure outlives a request. The next local request is started under it with the next dispatch number and without a
//! message to ZooKeeper. Remote contenders must not starve: as soon as one waits that cannot hold together with this
//! tenure, the rest of the tenure is bounded.

use std::{collections::VecDeque, time::Duration};

use fencegate_policies::plan::{CachedHoldLimits, LockMode};
use fencegate_process::clock::BootInstant;
use fencegate_zookeeper::tenure_end::{TenureEnd, TenureEndCause};

use super::{
    call_chain::NestedCallbackError,
    held_lock::{GRACE, HeldLock, HeldLockView},
};

/// The requests and the tenure of one key. `W` answers a waiting request, `C` is the credentials of the tenure that
/// dispatches need.
#[derive(Debug)]
pub(crate) struct LockQueue<W, C> {
    waiting: VecDeque<QueuedLockRequest<W>>,
    tenure: Option<HeldLock<C>>,
    /// Whether a task of the session's thread works for this key.
    attended: bool,
}

#[derive(Debug)]
struct QueuedLockRequest<W> {
    mode: LockMode,
    since: BootInstant,
    caller: W,
}

/// A request that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedLockRequest<C> {
    pub credentials: C,
    /// The number of the request's first dispatch.
    pub number: u32,
}

/// The result of the arrival of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueArrivalOutcome<C> {
    Start(GrantedLockRequest<C>),
    /// The request waits. `attend`: a task has to be started for the key.
    Wait {
        attend: bool,
    },
    /// The queue is full, so the request cannot wait.
    Full,
    Busy,
}

/// The policy by which a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueJoinPolicy {
    /// The request waits in the queue, behind at most this many requests.
    QueueBehind(usize),
    /// The request waits only for ZooKeeper's reply, not for another holder.
    NoWait,
}

/// The next action of the key's task for the tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenureDecision {
    /// The task checks again when something changes, and after this time at the latest.
    Keep(Duration),
    /// The tenure is released; nothing is in flight under it.
    End,
}

impl<W, C> Default for LockQueue<W, C> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), tenure: None, attended: false }
    }
}

impl<W, C: Clone> LockQueue<W, C> {
    /// Enters a request for the key. `proven`: whether the tenure is valid now.
    pub(crate) fn arrive(
        &mut self,
        mode: LockMode,
        patience: QueueJoinPolicy,
        now: BootInstant,
        proven: impl Fn(&C) -> bool,
        caller: impl FnOnce() -> W,
    ) -> QueueArrivalOutcome<C> {
        if let Some(started) = self.start_if_free(mode, now, &proven) {
            return QueueArrivalOutcome::Start(started);
        }
        match patience {
            QueueJoinPolicy::NoWait if self.tenure.is_some() || !self.waiting.is_empty() => {
                return QueueArrivalOutcome::Busy;
            }
            QueueJoinPolicy::QueueBehind(most) if self.waiting.len() >= self.max_waiting(most) => {
                return QueueArrivalOutcome::Full;
            }
            _ => {}
        }
        self.waiting.push_back(QueuedLockRequest { mode, since: now, caller: caller() });
        let attend = !std::mem::replace(&mut self.attended, true);
        QueueArrivalOutcome::Wait { attend }
    }

    /// The number of requests that may wait, if `most` may wait behind the holder. While there is no holder it is one
    /// more, because one of the waiting requests will hold.
    fn max_waiting(&self, most: usize) -> usize {
        if self.in_flight_count() == 0 { most.saturating_add(1) } else { most }
    }

    /// Starts a request that does not have to wait. It has to wait if any other request waits: a reader does not
    /// overtake a waiting writer.
    pub(crate) fn start_if_free(
        &mut self,
        mode: LockMode,
        now: BootInstant,
        proven: impl Fn(&C) -> bool,
    ) -> Option<GrantedLockRequest<C>> {
        if !self.waiting.is_empty() {
            return None;
        }
        self.start(mode, now, &proven)
    }

    /// Sets the granted lock; nothing is in flight under it yet. `reached`: remote contenders may forward their
    /// requests here instead of waiting.
    pub(crate) fn set_grant(
        &mut self,
        credentials: C,
        mode: LockMode,
        rules: CachedHoldLimits,
        reached: bool,
        now: BootInstant,
    ) {
        debug_assert!(self.tenure.is_none(), "one tenure at a time");
        self.tenure = Some(HeldLock::new(credentials, mode, rules, reached, now));
    }

    /// Starts the first waiting request, if it may start now. Call it until it returns `None`.
    pub(crate) fn start_next(
        &mut self,
        now: BootInstant,
        proven: impl Fn(&C) -> bool,
    ) -> Option<(W, GrantedLockRequest<C>)> {
        let mode = self.waiting.front()?.mode;
        let started = self.start(mode, now, &proven)?;
        let first = self.waiting.pop_front()?;
        Some((first.caller, started))
    }

    fn start(
        &mut self,
        mode: LockMode,
        now: BootInstant,
        proven: &impl Fn(&C) -> bool,
    ) -> Option<GrantedLockRequest<C>> {
        let tenure = self.tenure.as_mut()?;
        let free = mode == LockMode::Shared || tenure.in_flight == 0;
        let may =
            tenure.mode == mode && free && !tenure.is_closed_to_requests(now) && proven(&tenure.credentials);
        may.then(|| GrantedLockRequest {
            number: tenure.begin_request(),
            credentials: tenure.credentials.clone(),
        })
    }

    /// Starts a callback inside the dispatch with this number. It overtakes all waiting requests: they wait for its
    /// caller, and the caller waits for it.
    ///
    /// # Errors
    /// Returns an error if the callback cannot run inside that dispatch, now or ever.
    pub(crate) fn start_callback(
        &mut self,
        number: u32,
        mode: LockMode,
        proven: impl Fn(&C) -> bool,
    ) -> Result<GrantedLockRequest<C>, NestedCallbackError> {
        let tenure = self.tenure.as_mut().ok_or(NestedCallbackError::NotHeld)?;
        if !proven(&tenure.credentials) {
            return Err(NestedCallbackError::Unproven);
        }
        let number = tenure.begin_callback(number, mode)?;
        Ok(GrantedLockRequest { number, credentials: tenure.credentials.clone() })
    }

    /// The number of one more dispatch of the request in flight whose first dispatch number is `first`. `None`: the
    /// tenure is closed.
    pub(crate) fn next_dispatch_number(&mut self, first: u32) -> Option<u32> {
        self.tenure.as_mut()?.next_dispatch(first)
    }

    /// Ends the request in flight whose first dispatch number is `first`.
    pub(crate) fn finish_request(&mut self, first: u32, now: BootInstant) {
        let tenure = self.tenure.as_mut().expect("a tenure stays while something is in flight under it");
        tenure.finish_request(first, now);
    }

    /// Closes the tenure: nothing more is started under it. If it is closed twice, the first cause counts.
    pub(crate) fn close(&mut self, cause: TenureEndCause) {
        if let Some(tenure) = &mut self.tenure {
            tenure.closed.get_or_insert(cause);
        }
    }

    /// Records that the outcome of a request is unknown, and will stay unknown.
    pub(crate) fn mark_outcome_unknown(&mut self) {
        self.close(TenureEndCause::Retired);
        if let Some(tenure) = &mut self.tenure {
            tenure.known = false;
        }
    }

    /// Closes the tenure if nothing uses it. Returns whether the tenure is closed.
    pub(crate) fn evict(&mut self) -> bool {
        let idle = self.waiting.is_empty() && self.idle_since().is_some();
        if idle {
            self.close(TenureEndCause::Evicted);
        }
        idle
    }

    /// Records that a remote contender really waits for the lock, and not only to find the holder.
    pub(crate) fn end_contention_grace(&mut self) {
        if let Some(tenure) = &mut self.tenure {
            tenure.grace = Duration::ZERO;
        }
    }

    /// Records that a remote contender waits that cannot hold together with this tenure.
    pub(crate) fn mark_contended(&mut self, now: BootInstant) {
        if let Some(tenure) = &mut self.tenure
            && tenure.contended.is_none()
        {
            tenure.contended = Some((now, tenure.dispatched));
        }
    }

    /// Records that no remote contender waits any more: it has gone, or forwards its requests here.
    pub(crate) fn clear_contended(&mut self) {
        if let Some(tenure) = &mut self.tenure {
            tenure.contended = None;
        }
    }

    /// The next action for the tenure, if there is one.
    pub(crate) fn next_action(&mut self, now: BootInstant) -> TenureDecision {
        let waits_for_other = self
            .tenure
            .as_ref()
            .is_some_and(|tenure| self.waiting.front().is_some_and(|first| first.mode != tenure.mode));
        if waits_for_other {
            // A local request of the other mode counts like a remote contender.
            self.mark_contended(now);
        }
        let Some(tenure) = &self.tenure else { return TenureDecision::End };
        if tenure.in_flight > 0 {
            return TenureDecision::Keep(tenure.rules.linger.max(MIN_CHECK_INTERVAL));
        }
        let unwanted = self.waiting.is_empty() && tenure.is_wanted_elsewhere(now);
        if tenure.is_closed_to_requests(now) || waits_for_other || unwanted {
            return TenureDecision::End;
        }
        let idle = now.since(tenure.idle_since);
        if !self.waiting.is_empty() {
            // The requests wait only because the tenure is not valid now, so check again soon.
            return TenureDecision::Keep(MIN_CHECK_INTERVAL);
        }
        match tenure.rules.linger.checked_sub(idle) {
            Some(rest) if !rest.is_zero() && tenure.contended.is_some() => {
                TenureDecision::Keep(rest.min(GRACE))
            }
            Some(rest) if !rest.is_zero() => TenureDecision::Keep(rest.max(MIN_CHECK_INTERVAL)),
            _ => TenureDecision::End,
        }
    }

    /// Whether the task of the key has to check now, before the time of its next check.
    pub(crate) fn needs_task_wakeup(&self, now: BootInstant) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| {
            let other = self.waiting.front().is_some_and(|first| first.mode != tenure.mode);
            tenure.in_flight == 0
                && (other || tenure.is_closed_to_requests(now) || tenure.contended.is_some())
        })
    }

    /// Takes the tenure out, so that requests wait from now on. Returns how the tenure ended, if there was one.
    pub(crate) fn take_idle_tenure(&mut self, now: BootInstant) -> Option<TenureEnd> {
        debug_assert!(self.in_flight_count() == 0, "a tenure stays while something is in flight under it");
        let tenure = self.tenure.take()?;
        Some(TenureEnd { cause: tenure.end_cause(now), dispatches: tenure.dispatched, known: tenure.known })
    }

    /// Removes the waiting requests whose callers have gone. Returns whether any request is left.
    pub(crate) fn remove_gone(&mut self, gone: impl Fn(&W) -> bool) -> bool {
        self.waiting.retain(|waiting| !gone(&waiting.caller));
        !self.waiting.is_empty()
    }

    /// Removes the waiting requests for which `leaves` is true, and returns their callers.
    pub(crate) fn remove_waiting_where(&mut self, leaves: impl Fn(&W) -> bool) -> Vec<W> {
        let (leaving, staying) = self.waiting.drain(..).partition(|waiting| leaves(&waiting.caller));
        self.waiting = staying;
        VecDeque::into_iter(leaving).map(|waiting| waiting.caller).collect()
    }

    /// The mode and the caller of the first waiting request.
    pub(crate) fn first_waiting(&self) -> Option<(LockMode, &W)> {
        self.waiting.front().map(|first| (first.mode, &first.caller))
    }

    /// Whether a task works for the key.
    pub(crate) fn has_task(&self) -> bool {
        self.attended
    }

    /// Whether no request waits and nothing is held. Then the slot can be removed, and its task may end.
    pub(crate) fn try_end_task(&mut self) -> bool {
        let done = self.waiting.is_empty() && self.tenure.is_none();
        if done {
            self.attended = false;
        }
        done
    }

    pub(crate) fn in_flight_count(&self) -> u32 {
        self.tenure.as_ref().map_or(0, |tenure| tenure.in_flight)
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn credentials(&self) -> Option<&C> {
        self.tenure.as_ref().map(|tenure| &tenure.credentials)
    }

    /// The time since when the tenure is idle; `None` while something is in flight or nothing is held.
    pub(crate) fn idle_since(&self) -> Option<BootInstant> {
        self.tenure.as_ref().filter(|tenure| tenure.in_flight == 0).map(|tenure| tenure.idle_since)
    }

    /// The waiting requests in their order: mode, arrival, and caller.
    pub(crate) fn waiting_requests(&self) -> impl ExactSizeIterator<Item = (LockMode, BootInstant, &W)> {
        self.waiting.iter().map(|waiting| (waiting.mode, waiting.since, &waiting.caller))
    }

    pub(crate) fn held_lock(&self) -> Option<HeldLockView<'_, C>> {
        self.tenure.as_ref().map(HeldLock::view)
    }
}

/// The least time between two checks of a tenure by its task, unless it is woken.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
