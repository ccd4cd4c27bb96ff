//! The worker's side of lock nodes that are not cached: the nodes of one request with its callbacks, or of a lease with
//! the requests under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencegate_policies::{plan::LockMode, token::FencingToken};
use fencegate_process::clock::SharedClock;
use fencegate_recipe::grant::LockGrant;
use tokio::sync::{Notify, oneshot};

use super::{
    call_chain::{NestedCallbackError, NestedRequestChains},
    grant_guard::{GrantGuard, MultiRequestLock},
    key_capacity::HolderKind,
    uncached_registry::{FIRST, UncachedLockEntryGuard},
};

/// The lock of one request or lease, held until all its parts are over.
#[derive(Debug)]
pub(super) struct UncachedLock {
    grant: LockGrant,
    mode: LockMode,
    entry_guard: UncachedLockEntryGuard,
    clock: SharedClock,
    of: HolderKind,
    state: Mutex<UncachedLockState>,
    /// Notified whenever a part of the lock is over. At most one task waits for this: the next request under a lease.
    pub(super) stirred: Notify,
}

#[derive(Debug)]
struct UncachedLockState {
    chains: NestedRequestChains,
    /// Whether the client's lease is over, so that nothing more is started under the lock.
    closed: bool,
    /// Whether an outcome is unknown, so that nothing more is started under the lock.
    retired: bool,
    /// Reports to the task of the node that nothing is in flight any more, and whether all outcomes are known.
    over: Option<oneshot::Sender<bool>>,
}

/// Grants the lock to its request.
pub(super) fn create_uncached_lock(
    grant: LockGrant,
    mode: LockMode,
    of: HolderKind,
    over: oneshot::Sender<bool>,
    enrolled: UncachedLockEntryGuard,
    clock: SharedClock,
) -> (Arc<UncachedLock>, GrantGuard) {
    let mut chains = NestedRequestChains::default();
    chains.begin_root_request(FIRST);
    let state = Mutex::new(UncachedLockState { chains, closed: false, retired: false, over: Some(over) });
    let stirred = Notify::new();
    let lock = Arc::new(UncachedLock {
        grant: grant.clone(),
        mode,
        entry_guard: enrolled,
        clock,
        of,
        state,
        stirred,
    });
    let found: Arc<dyn MultiRequestLock> = lock.clone();
    lock.entry_guard.attach_lock_for_lookup(Arc::downgrade(&found));
    (lock, GrantGuard::for_uncached(grant, FIRST, found))
}

impl UncachedLock {
    fn lock_state(&self) -> MutexGuard<'_, UncachedLockState> {
        // A poisoned lock does no harm: no panic can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request under a lease. Exclusive requests run one after another: [`NestedCallbackError::NotInnermost`]
    /// means that one runs now.
    pub(super) fn start_request(
        self: &Arc<Self>,
        mode: LockMode,
    ) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
        let mut state = self.lock_state();
        if state.retired || state.closed {
            return Err(NestedCallbackError::Closed);
        }
        if (self.mode, mode) == (LockMode::Shared, LockMode::Exclusive) {
            return Err(NestedCallbackError::Upgrade);
        }
        if !self.grant.validity.is_valid_at(self.clock.now()) {
            return Err(NestedCallbackError::Unproven);
        }
        if self.mode == LockMode::Exclusive && !state.chains.is_only_request(FIRST) {
            return Err(NestedCallbackError::NotInnermost);
        }
        let first = self.entry_guard.next_dispatch_number().ok_or(NestedCallbackError::Closed)?;
        state.chains.begin_root_request(first);
        drop(state);
        Ok((GrantGuard::for_uncached(self.grant.clone(), first, self.clone()), self.mode))
    }

    /// Closes the lock: no request is started under it, or sent for the first time.
    pub(super) fn stop_new_requests(&self) {
        self.lock_state().closed = true;
        self.stirred.notify_one();
    }

    /// The number of requests at work under the lock, without the lease's own part.
    pub(super) fn active_request_count(&self) -> usize {
        self.lock_state().chains.count_other_requests(FIRST)
    }

    /// Whether an unknown outcome keeps the lock from starting anything more.
    pub(super) fn is_grant_retired(&self) -> bool {
        self.lock_state().retired
    }
}

impl MultiRequestLock for UncachedLock {
    fn is_first_dispatch_allowed(&self) -> bool {
        let state = self.lock_state();
        !state.retired && !state.closed
    }

    fn next_dispatch_number(&self, first: u32) -> Option<u32> {
        let mut state = self.lock_state();
        let number = self.entry_guard.next_dispatch_number().filter(|_| !state.retired)?;
        state.chains.record_dispatch(first, number);
        Some(number)
    }

    fn start_callback(
        self: Arc<Self>,
        from: FencingToken,
        mode: LockMode,
    ) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
        let mut state = self.lock_state();
        if state.retired {
            return Err(NestedCallbackError::Closed);
        }
        if !self.grant.validity.is_valid_at(self.clock.now()) {
            return Err(NestedCallbackError::Unproven);
        }
        let caller = state.chains.find_caller(from.dispatch())?;
        if (caller, self.of) == (FIRST, HolderKind::Client) {
            // The token of a lease itself belongs to no dispatch, so nothing can be called back with it.
            return Err(NestedCallbackError::NotInFlight);
        }
        if (self.mode, mode) == (LockMode::Shared, LockMode::Exclusive) {
            return Err(NestedCallbackError::Upgrade);
        }
        let first = self.entry_guard.next_dispatch_number().ok_or(NestedCallbackError::Closed)?;
        state.chains.begin_callback(caller, first);
        drop(state);
        let grant = self.grant.clone();
        let held = self.mode;
        Ok((GrantGuard::for_uncached(grant, first, self), held))
    }

    fn retire(&self) {
        self.lock_state().retired = true;
        self.stirred.notify_one();
    }

    fn finish_request(self: Arc<Self>, first: u32, known: bool) {
        let mut state = self.lock_state();
        state.retired |= !known;
        state.chains.end_request(first);
        // The parts end in any order; the node is removed when the last one ends.
        if state.chains.is_empty()
            && let Some(over) = state.over.take()
        {
            // Sending fails only after the session's thread has ended.
            over.send(!state.retired).ok();
        }
        drop(state);
        self.stirred.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fencegate_policies::{key::KeyTemplate, plan::LockReusePolicy};
    use fencegate_process::clock::{BootInstant, ManualClock};

    use super::*;
    use crate::manager::{
        lock_request::{LockRequest, LockWaitPlace},
        uncached_registry::{LockWaitInfo, UncachedLockRegistry},
    };
    use fencegate_zookeeper::session::{lock_validity::LockValidity, session_deadline::SessionDeadline};

    struct Fixture {
        roll: Arc<UncachedLockRegistry>,
        keys: Vec<fencegate_policies::key::ResourceKey>,
        over: oneshot::Receiver<bool>,
        outer: GrantGuard,
    }

    fn fixture(mode: LockMode) -> Fixture {
        let roll = Arc::<UncachedLockRegistry>::default();
        let key = |text| KeyTemplate::parse(text).expect("a literal").expand(&()).expect("short");
        let keys = vec![key("a"), key("b")];
        let route = "transfer".into();
        let request = LockRequest {
            keys: &keys,
            sites: &[],
            mode,
            hold: LockReusePolicy::Strict,
            wait: Duration::ZERO,
            queue: 1,
            waits: LockWaitPlace::Here,
            delay: None,
            route: &route,
        };
        let enrolled =
            roll.register(request, LockWaitInfo { asked: BootInstant::from_nanos(0), ahead: Arc::default() });
        let validity =
            Arc::new(LockValidity::new(Arc::new(SessionDeadline::new(1, BootInstant::from_nanos(1 << 50)))));
        let grant =
            LockGrant { epoch: 7, sequence: 0, permit: None, validity, nodes: [].into(), contended: false };
        enrolled.set_granted(&grant, BootInstant::from_nanos(0));
        let (sender, over) = oneshot::channel();
        let (_, outer) = create_uncached_lock(
            grant,
            mode,
            HolderKind::Request,
            sender,
            enrolled,
            Arc::<ManualClock>::default(),
        );
        Fixture { roll, keys, over, outer }
    }

    impl Fixture {
        fn start_callback_from(
            &self,
            from: FencingToken,
            mode: LockMode,
        ) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
            self.roll
                .find_lock(&self.keys, from)
                .ok_or(NestedCallbackError::NotHeld)?
                .start_callback(from, mode)
        }
    }

    /// A set of locks is released only when the request and all callbacks of its service have ended.
    #[test]
    fn lock_set_is_held_through_callbacks() {
        let mut bench = fixture(LockMode::Exclusive);
        let from = bench.outer.next_dispatch().expect("a dispatch").token;
        let (inner, held) = bench.start_callback_from(from, LockMode::Shared).expect("inside");
        assert_eq!(held, LockMode::Exclusive);
        let called = inner.next_dispatch().expect("a dispatch").token;
        assert_eq!((called.number(), called.dispatch()), (from.number(), 2));
        assert_eq!(
            bench.start_callback_from(from, LockMode::Shared).map(drop),
            Err(NestedCallbackError::NotInnermost)
        );
        inner.mark_upstream_settled();
        bench.outer.mark_upstream_settled();
        let Fixture { outer, .. } = &mut bench;
        drop(std::mem::replace(outer, inner));
        assert!(bench.over.try_recv().is_err(), "what was called still runs");
        assert_eq!(
            bench.start_callback_from(from, LockMode::Shared).map(drop),
            Err(NestedCallbackError::NotInFlight)
        );
        let Fixture { outer: inner, mut over, roll, keys } = bench;
        drop(inner);
        assert_eq!(over.try_recv(), Ok(true));
        assert!(roll.find_lock(&keys, from).is_none(), "nothing is held any more");
    }

    /// A callback whose outcome is unknown retires the grant: nothing more is dispatched under it.
    #[test]
    fn callback_in_doubt_retires_grant() {
        let Fixture { roll, keys, mut over, outer } = fixture(LockMode::Exclusive);
        let from = outer.next_dispatch().expect("a dispatch").token;
        let lock = || roll.find_lock(&keys, from).expect("held");
        let (inner, _) = lock().start_callback(from, LockMode::Exclusive).expect("inside");
        inner.next_dispatch().expect("a dispatch");
        drop(inner);
        assert_eq!(
            lock().start_callback(from, LockMode::Exclusive).map(drop),
            Err(NestedCallbackError::Closed)
        );
        assert!(outer.next_dispatch().is_none(), "nothing more is sent under it");
        outer.mark_upstream_settled();
        drop(outer);
        assert_eq!(over.try_recv(), Ok(false));
    }

    /// An exclusive callback under a shared lock is refused at once and does not wait.
    #[test]
    fn shared_lock_refuses_exclusive_callback() {
        let bench = fixture(LockMode::Shared);
        let from = bench.outer.next_dispatch().expect("a dispatch").token;
        assert_eq!(
            bench.start_callback_from(from, LockMode::Exclusive).map(drop),
            Err(NestedCallbackError::Upgrade)
        );
        assert!(bench.start_callback_from(from, LockMode::Shared).is_ok());
    }
}
