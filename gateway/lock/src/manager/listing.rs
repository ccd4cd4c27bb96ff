//! Shows operators the locks that this gateway holds and waits for. Requests are not blocked: each key is read under
//! its own mutex, and a shard of the table is locked only while its keys are listed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::BootInstant;
use fencegate_recipe::grant::LockGrant;

use super::{
    held_lock::HeldLockView,
    key_slot::{KeySlot, KeySlotSnapshot},
    lock_manager::LockManager,
    uncached_registry::UncachedLockEntry,
};

/// One key that requests of this gateway hold or wait for.
#[derive(Debug, Clone)]
pub struct ListedLock {
    pub key: ResourceKey,
    /// The tenures of this gateway: one, or several that share the key.
    pub held: Vec<HeldLockInfo>,
    /// The waiting requests in their order; if there are very many, only the first of them.
    pub line: Vec<WaiterInfo>,
    pub waiting: usize,
    pub why: Option<WaitReason>,
    /// The rest of a delay that runs because the last holder left without recording that its requests are over.
    pub rest: Option<Duration>,
}

/// A tenure of this gateway.
#[derive(Debug, Clone)]
pub struct HeldLockInfo {
    /// The route of the request that was started last.
    pub route: Option<Arc<str>>,
    pub mode: LockMode,
    /// The token of the last dispatch.
    pub token: Option<FencingToken>,
    pub keeping: NodeCachingMode,
    pub since: Duration,
    pub in_flight: u32,
    /// Whether a contender waits that cannot hold together with this tenure.
    pub contended: bool,
    /// Whether requests may write under it: its session deadline has not passed, and its node was not removed by
    /// another client.
    pub proven: bool,
    /// Whether it is closed, so that nothing more is started under it.
    pub ending: bool,
    /// Paths of the lock nodes.
    pub nodes: Arc<[String]>,
}

/// Whether the lock node is kept after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCachingMode {
    /// The node is kept for the next requests, too.
    Cached,
    /// The node is for one request only.
    Strict,
}

/// A request that waits.
#[derive(Debug, Clone)]
pub struct WaiterInfo {
    pub route: Arc<str>,
    pub mode: LockMode,
    pub since: Duration,
}

/// The reason for which a request waits, from the state of this gateway alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// Requests of this gateway are at work under the key.
    HeldHere,
    /// This gateway holds the lock and nothing runs; it is being handed over, or its session deadline has passed.
    HandingOver,
    /// There is no holder, but requests of the last holder may not be over.
    Delay,
    /// At the last check, a remote holder was ahead.
    HeldElsewhere,
    /// ZooKeeper has not answered yet.
    Asking,
}

/// The most waiting requests of one key that are shown.
const MAX_WAITERS: usize = 20;

/// Some of the locks of a gateway.
#[derive(Debug, Clone)]
pub struct LockListing {
    pub locks: Vec<ListedLock>,
    /// Whether there are more locks after the last one of the listing.
    pub more: bool,
    /// Held keys, including those that are not shown.
    pub held: usize,
    pub waiting: usize,
    /// The number of keys that requests wait for.
    pub wanted: usize,
}

/// Selects locks for a listing.
#[derive(Debug, Clone, Copy, Default)]
pub struct LockListFilter<'a> {
    /// Only keys greater than this one.
    pub after: Option<&'a ResourceKey>,
    /// Only keys that requests wait for.
    pub wanted: bool,
    pub limit: usize,
    pub order: LockListOrder,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockListOrder {
    #[default]
    Key,
    /// First the locks that requests wait for, then the locks in use; in each group those that wait, or are held,
    /// the longest come first.
    Interest,
}

impl LockManager {
    /// Lists the first of the selected locks.
    pub fn list_locks(&self, select: LockListFilter<'_>) -> LockListing {
        let by_key = LockListFilter { limit: usize::MAX, ..select };
        match select.order {
            LockListOrder::Key => self.collect(select),
            LockListOrder::Interest => self.collect(by_key).keep_longest_waiting(select.limit),
        }
    }

    fn collect(&self, select: LockListFilter<'_>) -> LockListing {
        let now = self.clock.now();
        let mut survey = LockListing { locks: Vec::new(), more: false, held: 0, waiting: 0, wanted: 0 };
        let mut strict = group_by_key(&self.uncached_registry.entries());
        let mut slots = self.table.slots(None);
        slots.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let mut slots = slots.into_iter().peekable();
        loop {
            let first = match (slots.peek(), strict.first_key_value()) {
                (Some(slot), Some((key, _))) => slot.key.clone().min(key.clone()),
                (Some(slot), None) => slot.key.clone(),
                (None, Some((key, _))) => key.clone(),
                (None, None) => return survey,
            };
            let slot = slots.next_if(|slot| slot.key == first);
            let requests = strict.remove(&first).unwrap_or_default();
            survey.add_if_selected(&first, slot.as_deref(), &requests, select, now);
        }
    }

    /// The lock of one key; `None` when no request of this gateway holds it or waits for it.
    pub fn lock_info(&self, key: &ResourceKey) -> Option<ListedLock> {
        let requests: Vec<_> = self
            .uncached_registry
            .entries()
            .into_iter()
            .filter(|request| request.keys.contains(key))
            .collect();
        let slot = self.table.slot(key);
        (slot.is_some() || !requests.is_empty())
            .then(|| ListedLock::new(key.clone(), slot.as_deref(), &requests, self.clock.now()))
    }
}

fn group_by_key(requests: &[Arc<UncachedLockEntry>]) -> BTreeMap<ResourceKey, Vec<Arc<UncachedLockEntry>>> {
    let mut keys: BTreeMap<ResourceKey, Vec<Arc<UncachedLockEntry>>> = BTreeMap::new();
    for request in requests {
        for key in &request.keys {
            keys.entry(key.clone()).or_default().push(request.clone());
        }
    }
    keys
}

impl LockListing {
    fn keep_longest_waiting(mut self, limit: usize) -> Self {
        let interest = |lock: &ListedLock| {
            let held = lock.held.iter().map(|held| (held.in_flight > 0, held.since)).max();
            std::cmp::Reverse((lock.line.first().map(|first| first.since), held))
        };
        self.locks.sort_by_key(interest);
        self.more = self.locks.len() > limit;
        self.locks.truncate(limit);
        self
    }

    fn add_if_selected(
        &mut self,
        key: &ResourceKey,
        slot: Option<&KeySlot>,
        requests: &[Arc<UncachedLockEntry>],
        select: LockListFilter<'_>,
        now: BootInstant,
    ) {
        let lock = ListedLock::new(key.clone(), slot, requests, now);
        self.held += usize::from(!lock.held.is_empty());
        self.waiting += lock.waiting;
        self.wanted += usize::from(lock.waiting > 0);
        let shown =
            select.after.is_none_or(|after| lock.key > *after) && (!select.wanted || lock.waiting > 0);
        if shown && self.locks.len() < select.limit {
            self.locks.push(lock);
        } else {
            self.more |= shown;
        }
    }
}

impl ListedLock {
    fn new(
        key: ResourceKey,
        slot: Option<&KeySlot>,
        requests: &[Arc<UncachedLockEntry>],
        now: BootInstant,
    ) -> Self {
        let mut lock = Self { key, held: Vec::new(), line: Vec::new(), waiting: 0, why: None, rest: None };
        let mut elsewhere = false;
        if let Some(slot) = slot {
            slot.with_snapshot(|looked| lock.add_cached(looked, now, &mut elsewhere));
        }
        for request in requests {
            lock.add_uncached(request, now, &mut elsewhere);
        }
        lock.line.sort_by_key(|waiter| std::cmp::Reverse(waiter.since));
        lock.line.truncate(MAX_WAITERS);
        lock.why = (lock.waiting > 0).then(|| {
            if lock.held.iter().any(|held| held.in_flight > 0) {
                WaitReason::HeldHere
            } else if !lock.held.is_empty() {
                WaitReason::HandingOver
            } else if lock.rest.is_some() {
                WaitReason::Delay
            } else if elsewhere {
                WaitReason::HeldElsewhere
            } else {
                WaitReason::Asking
            }
        });
        lock
    }

    fn add_cached(&mut self, looked: KeySlotSnapshot<'_>, now: BootInstant, elsewhere: &mut bool) {
        self.waiting += looked.waiting.len();
        self.line.extend(looked.waiting.take(MAX_WAITERS).map(|(mode, since, route)| WaiterInfo {
            route: route.clone(),
            mode,
            since: now.since(since),
        }));
        *elsewhere |= looked.elsewhere;
        self.rest = self.rest.max(looked.rest);
        if let Some(HeldLockView { credentials, mode, granted, in_flight, dispatched, contended, closed }) =
            looked.held
        {
            self.held.push(HeldLockInfo {
                route: looked.route.cloned(),
                token: tenure_token(credentials, dispatched),
                keeping: NodeCachingMode::Cached,
                since: now.since(granted),
                proven: credentials.validity.is_valid_at(now),
                nodes: credentials.nodes.clone(),
                ending: closed,
                mode,
                in_flight,
                contended,
            });
        }
    }

    fn add_uncached(&mut self, request: &UncachedLockEntry, now: BootInstant, elsewhere: &mut bool) {
        let Some((grant, since)) = request.granted.get() else {
            self.waiting += 1;
            *elsewhere |= request.asking.ahead.has_holder_or_delay();
            self.rest = self.rest.max(request.asking.ahead.remaining_handover_delay(now));
            let since = now.since(request.asking.asked);
            return self.line.push(WaiterInfo { route: request.route.clone(), mode: request.mode, since });
        };
        self.held.push(HeldLockInfo {
            route: Some(request.route.clone()),
            mode: request.mode,
            token: tenure_token(grant, request.last_dispatch_number()),
            keeping: NodeCachingMode::Strict,
            since: now.since(*since),
            in_flight: 1,
            contended: false,
            proven: grant.validity.is_valid_at(now),
            ending: false,
            nodes: grant.nodes.clone(),
        });
    }
}

/// The token of the last dispatch. A tenure that has not dispatched anything is identified by the token of its first
/// dispatch.
fn tenure_token(grant: &LockGrant, dispatched: u32) -> Option<FencingToken> {
    FencingToken::new(grant.epoch, grant.sequence, dispatched.max(1)).ok()
}
