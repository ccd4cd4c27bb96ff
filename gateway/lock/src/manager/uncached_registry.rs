//! A list of the requests that wait for or hold lock nodes of their own, for operators and for callbacks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::BootInstant;
use fencegate_recipe::grant::LockGrant;

use crate::manager::{
    grant_guard::MultiRequestLock,
    lock_request::{LockRequest, LockWaitProgress},
};

/// The requests, by their number of arrival. Each of them costs a quorum write, so the contention for one
/// mutex is small beside that.
#[derive(Debug, Default)]
pub(crate) struct UncachedLockRegistry(Mutex<UncachedRegistryState>);

#[derive(Debug, Default)]
struct UncachedRegistryState {
    all: BTreeMap<u64, Arc<UncachedLockEntry>>,
    next: u64,
}

/// One request of the registry.
#[derive(Debug)]
pub(super) struct UncachedLockEntry {
    pub(super) keys: Vec<ResourceKey>,
    pub(super) mode: LockMode,
    pub(super) route: Arc<str>,
    pub(super) asking: LockWaitInfo,
    pub(super) granted: OnceLock<(LockGrant, BootInstant)>,
    /// The lock that the request holds, for as long as a part of the lock is in flight.
    lock: OnceLock<Weak<dyn MultiRequestLock>>,
    /// The number of the last dispatch.
    number: AtomicU32,
}

/// The start of the wait, and the reasons for it.
#[derive(Debug)]
pub(super) struct LockWaitInfo {
    pub(super) asked: BootInstant,
    pub(super) ahead: Arc<LockWaitProgress>,
}

/// The number of the first dispatch under a lock node.
pub(super) const FIRST: u32 = 1;

/// Keeps the entry of one request in the registry until it is dropped.
#[derive(Debug)]
pub(crate) struct UncachedLockEntryGuard {
    roll: Arc<UncachedLockRegistry>,
    number: u64,
    request: Arc<UncachedLockEntry>,
}

impl UncachedLockRegistry {
    pub(super) fn register(
        self: &Arc<Self>,
        lock_request: LockRequest<'_>,
        asking: LockWaitInfo,
    ) -> UncachedLockEntryGuard {
        let request = Arc::new(UncachedLockEntry {
            keys: lock_request.keys.to_vec(),
            mode: lock_request.mode,
            route: lock_request.route.clone(),
            asking,
            granted: OnceLock::new(),
            lock: OnceLock::new(),
            number: AtomicU32::new(FIRST),
        });
        let mut requests = self.lock_entries();
        let number = requests.next;
        requests.next += 1;
        requests.all.insert(number, request.clone());
        UncachedLockEntryGuard { roll: self.clone(), number, request }
    }

    /// All requests, the oldest first.
    pub(super) fn entries(&self) -> Vec<Arc<UncachedLockEntry>> {
        self.lock_entries().all.values().cloned().collect()
    }

    /// Finds the lock that holds exactly these keys with this token, of any dispatch.
    pub(super) fn find_lock(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Option<Arc<dyn MultiRequestLock>> {
        let holds = |request: &&Arc<UncachedLockEntry>| {
            let granted = request.granted.get();
            let same = |(grant, _): &(LockGrant, BootInstant)| {
                (grant.epoch, grant.sequence) == (token.number(), token.sequence())
            };
            granted.is_some_and(same) && request.keys == keys
        };
        self.lock_entries().all.values().find(holds)?.lock.get()?.upgrade()
    }

    fn lock_entries(&self) -> MutexGuard<'_, UncachedRegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UncachedLockEntry {
    /// The number of the last dispatch.
    pub(super) fn last_dispatch_number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }
}

impl UncachedLockEntryGuard {
    pub(super) fn set_granted(&self, grant: &LockGrant, now: BootInstant) {
        self.request.granted.get_or_init(|| (grant.clone(), now));
    }

    /// Attaches the lock to the entry. From now on callbacks find the lock here.
    pub(super) fn attach_lock_for_lookup(&self, lock: Weak<dyn MultiRequestLock>) {
        self.request.lock.get_or_init(|| lock);
    }

    /// The number of one more dispatch; `None` if all numbers are used up.
    pub(super) fn next_dispatch_number(&self) -> Option<u32> {
        let next = |number: u32| number.checked_add(1);
        let before = self.request.number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.ok().and_then(next)
    }
}

impl Drop for UncachedLockEntryGuard {
    fn drop(&mut self) {
        self.roll.lock_entries().all.remove(&self.number);
    }
}
