//! A held lock in the queue of its key: counts the requests that were started under it, and decides when it has to end.

use std::time::Duration;

use fencegate_policies::plan::{CachedHoldLimits, LockMode};
use fencegate_process::clock::BootInstant;
use fencegate_zookeeper::tenure_end::TenureEndCause;

use super::call_chain::{NestedCallbackError, NestedRequestChains};

/// A held lock.
#[derive(Debug)]
pub(super) struct HeldLock<C> {
    pub(super) credentials: C,
    pub(super) mode: LockMode,
    pub(super) rules: CachedHoldLimits,
    pub(super) granted: BootInstant,
    pub(super) in_flight: u32,
    chains: NestedRequestChains,
    /// The number of the last dispatch.
    pub(super) dispatched: u32,
    /// Set while a contender waits that cannot hold together with this lock: the time since when it waits, and the
    /// number of dispatches until then.
    pub(super) contended: Option<(BootInstant, u32)>,
    pub(super) idle_since: BootInstant,
    /// The cause for which nothing more is started under the lock; `None` while requests may start.
    pub(super) closed: Option<TenureEndCause>,
    /// Whether all outcomes so far are known.
    pub(super) known: bool,
    /// The time for which an idle lock is kept although a remote contender waits, because that one may only look for
    /// the holder.
    pub(super) grace: Duration,
}

/// A snapshot of a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLockView<'a, C> {
    pub credentials: &'a C,
    pub mode: LockMode,
    pub granted: BootInstant,
    pub in_flight: u32,
    /// The number of the last dispatch.
    pub dispatched: u32,
    /// Whether a contender waits that cannot hold together with the tenure.
    pub contended: bool,
    /// Whether nothing is started under the tenure any more.
    pub closed: bool,
}

/// A dispatch number that is never reached in practice; the tenure ends before its counter does.
const LAST_DISPATCH: u32 = u32::MAX - 1024;

/// The time for which an idle lock stays although a remote contender waits. A gateway that forwards its requests to the
/// holder creates a lock node, reads which gateway holds, and withdraws, all within a few round trips. If an idle
/// holder released the lock meanwhile, those requests would find no holder. The time is long enough for a busy machine,
/// and short compared with the time for which an idle tenure lingers.
pub(super) const GRACE: Duration = Duration::from_millis(50);

impl<C> HeldLock<C> {
    /// A lock that was just granted. `reached`: remote contenders may forward their requests here instead of waiting.
    pub(super) fn new(
        credentials: C,
        mode: LockMode,
        rules: CachedHoldLimits,
        reached: bool,
        now: BootInstant,
    ) -> Self {
        Self {
            credentials,
            mode,
            rules,
            granted: now,
            in_flight: 0,
            chains: NestedRequestChains::default(),
            dispatched: 0,
            contended: None,
            idle_since: now,
            closed: None,
            known: true,
            grace: if reached { GRACE } else { Duration::ZERO },
        }
    }

    /// Starts a request that is no callback. Returns its dispatch number.
    pub(super) fn begin_request(&mut self) -> u32 {
        self.in_flight += 1;
        self.dispatched += 1;
        self.chains.begin_root_request(self.dispatched);
        self.dispatched
    }

    /// Starts a callback inside the dispatch with this number. Returns the dispatch number of the callback. It starts
    /// even if the tenure is about to be released, because its caller keeps the tenure and waits for the callback.
    pub(super) fn begin_callback(&mut self, number: u32, mode: LockMode) -> Result<u32, NestedCallbackError> {
        if self.closed.is_some() {
            return Err(NestedCallbackError::Closed);
        }
        let caller = self.chains.find_caller(number)?;
        if (self.mode, mode) == (LockMode::Shared, LockMode::Exclusive) {
            return Err(NestedCallbackError::Upgrade);
        }
        let first = self.next_dispatch_number().ok_or(NestedCallbackError::Closed)?;
        self.in_flight += 1;
        self.chains.begin_callback(caller, first);
        Ok(first)
    }

    /// The number of one more dispatch of a request in flight, identified by its first dispatch number. `None`: nothing
    /// more is sent.
    pub(super) fn next_dispatch(&mut self, first: u32) -> Option<u32> {
        let number = self.next_dispatch_number()?;
        self.chains.record_dispatch(first, number);
        Some(number)
    }

    /// Records that a request in flight is over.
    pub(super) fn finish_request(&mut self, first: u32, now: BootInstant) {
        self.in_flight -= 1;
        self.chains.end_request(first);
        debug_assert_eq!(self.chains.is_empty(), self.in_flight == 0, "each of them is in one chain");
        if self.in_flight == 0 {
            self.idle_since = now;
        }
    }

    fn next_dispatch_number(&mut self) -> Option<u32> {
        if self.closed.is_some() || self.dispatched >= LAST_DISPATCH {
            return None;
        }
        self.dispatched += 1;
        Some(self.dispatched)
    }

    pub(super) fn view(&self) -> HeldLockView<'_, C> {
        HeldLockView {
            credentials: &self.credentials,
            mode: self.mode,
            granted: self.granted,
            in_flight: self.in_flight,
            dispatched: self.dispatched,
            contended: self.contended.is_some(),
            closed: self.closed.is_some(),
        }
    }

    /// Whether nothing more may be started under the lock.
    pub(super) fn is_closed_to_requests(&self, now: BootInstant) -> bool {
        let used_up = self.contended.is_some_and(|(since, dispatched)| {
            self.dispatched - dispatched >= self.rules.max_local || now.since(since) >= self.rules.max_hold
        });
        self.closed.is_some() || used_up || self.has_reached_limit(now)
    }

    /// Whether a remote contender really waits for the lock, and not only to find the holder.
    pub(super) fn is_wanted_elsewhere(&self, now: BootInstant) -> bool {
        self.contended.is_some_and(|(since, _)| now.since(since) >= self.grace)
    }

    pub(super) fn has_reached_limit(&self, now: BootInstant) -> bool {
        now.since(self.granted) >= self.rules.max_tenure || self.dispatched >= LAST_DISPATCH
    }

    /// The cause for an end of the lock at `now`.
    pub(super) fn end_cause(&self, now: BootInstant) -> TenureEndCause {
        match self.closed {
            Some(cause) => cause,
            None if self.contended.is_some() => TenureEndCause::Contended,
            None if self.has_reached_limit(now) => TenureEndCause::Limit,
            None => TenureEndCause::Idle,
        }
    }
}
