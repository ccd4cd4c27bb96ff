//! The queues of all keys, shared by all workers: where a warm key is handed over without a word to any other thread.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use fencegate_policies::{
    key::ResourceKey,
    plan::{Caching, Mode},
};
use tokio::sync::{Notify, oneshot};

use super::{
    ended::{Cause, Ended},
    grant::{Grant, NotGranted},
    queue::{Arrival, Due, Glimpse, Patience, Queue, Started},
    tenure::Tenure,
};
use crate::{
    session::clock::{Boot, SharedClock},
    sync::{AtomicBool, Mutex, MutexGuard},
};

/// How one waiting request is told.
pub type Answer = Result<Tenure, NotGranted>;

/// All keys that anybody here wants or holds.
pub struct Table {
    shards: [Mutex<HashMap<ResourceKey, Arc<Slot>>>; SHARDS],
    clock: SharedClock,
}

/// So that workers seldom meet at one lock.
const SHARDS: usize = 64;

/// One key.
pub struct Slot {
    pub key: ResourceKey,
    queue: Mutex<Entry>,
    /// Tells the task that works for the key to look again.
    look: Notify,
    /// A holder elsewhere is before us.
    behind: AtomicBool,
    clock: SharedClock,
}

struct Entry {
    queue: Queue<Caller, Grant>,
    /// Of the request that was started last, for whoever looks.
    route: Option<Arc<str>>,
    /// Taken out of the table: whoever still has the slot must ask the table again.
    removed: bool,
}

struct Caller {
    answer: oneshot::Sender<Answer>,
    route: Arc<str>,
    rules: Caching,
    patience: Patience,
}

/// What a request came to at once.
pub enum Entered {
    Started(Tenure),
    /// Wait for the answer; `attend` when a task has to be started for the key.
    Waiting {
        answer: oneshot::Receiver<Answer>,
        place: Place,
        attend: Option<Arc<Slot>>,
    },
    Full,
    Busy,
}

impl Table {
    pub fn new(clock: SharedClock) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), clock }
    }

    /// A request wants `key`. Where the key is held here and free, this is all that it takes.
    pub fn enter(
        &self,
        key: &ResourceKey,
        mode: Mode,
        rules: Caching,
        patience: Patience,
        route: &Arc<str>,
    ) -> Entered {
        let mut shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        if !shard.contains_key(key) {
            shard.insert(key.clone(), Arc::new(Slot::new(key.clone(), self.clock.clone())));
        }
        let slot = shard.get(key).expect("just made where missing");
        slot.enter(mode, rules, patience, route)
    }

    /// The tenure of a key that is held here and free; nothing is made and nobody waits.
    pub fn take_free(&self, key: &ResourceKey, mode: Mode, route: &Arc<str>) -> Option<Tenure> {
        let shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        let slot = shard.get(key)?;
        let mut entry = slot.entry();
        let started =
            entry.queue.start_free(mode, self.clock.now(), |grant| grant.evidence.holds(self.clock.now()))?;
        entry.is_of(route);
        drop(entry);
        Some(slot.tenure(started))
    }

    /// Every key that comes after `after`, in no order; each shard is held for as long as it takes to count its keys.
    pub(super) fn slots(&self, after: Option<&ResourceKey>) -> Vec<Arc<Slot>> {
        let mut slots = Vec::new();
        for shard in &self.shards {
            let shard = unpoisoned(shard);
            slots.extend(shard.values().filter(|slot| after.is_none_or(|after| slot.key > *after)).cloned());
        }
        slots
    }

    pub(super) fn slot(&self, key: &ResourceKey) -> Option<Arc<Slot>> {
        unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]).get(key).cloned()
    }

    /// Somebody holds the key, here or elsewhere, as far as is known.
    pub fn is_taken(&self, key: &ResourceKey) -> bool {
        let shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        shard
            .get(key)
            .is_some_and(|slot| slot.behind.load(Ordering::Relaxed) || slot.entry().queue.in_flight() > 0)
    }

    /// Forgets the key if nobody wants it any more; then its task ends.
    pub fn leave(&self, slot: &Arc<Slot>) -> bool {
        // The table first, as everywhere: a request that finds the slot must not find it half gone.
        let mut shard = unpoisoned(&self.shards[usize::from(slot.key.shard()) % SHARDS]);
        let mut entry = slot.entry();
        let leaves = entry.queue.leave();
        if leaves {
            entry.removed = true;
            shard.remove(&slot.key);
        }
        leaves
    }

    /// Nothing more is started under any tenure that is held now: whoever comes next gets a newer token.
    pub fn close_all(&self) {
        for shard in &self.shards {
            for slot in unpoisoned(shard).values() {
                slot.close(Cause::Reloaded);
                slot.look.notify_one();
            }
        }
    }

    /// Keys that somebody here wants or holds.
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|shard| unpoisoned(shard).len()).sum()
    }
}

impl Entry {
    /// A request of this route was started. Mostly the one before was of the same, and then no count is touched that
    /// workers share.
    fn is_of(&mut self, route: &Arc<str>) {
        if !self.route.as_ref().is_some_and(|known| Arc::ptr_eq(known, route)) {
            self.route = Some(route.clone());
        }
    }
}

/// Nothing between lock and unlock can leave a queue half changed.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One key as it is at one moment.
pub(super) struct Looked<'a> {
    pub(super) held: Option<Glimpse<'a, Grant>>,
    pub(super) route: Option<&'a Arc<str>>,
    pub(super) waiting: &'a mut dyn ExactSizeIterator<Item = (Mode, Boot, &'a Arc<str>)>,
    /// A holder elsewhere was before us when we last looked.
    pub(super) elsewhere: bool,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Slot {
    fn new(key: ResourceKey, clock: SharedClock) -> Self {
        let entry = Entry { queue: Queue::default(), route: None, removed: false };
        Self { key, queue: Mutex::new(entry), look: Notify::new(), behind: AtomicBool::new(false), clock }
    }

    fn entry(&self) -> MutexGuard<'_, Entry> {
        unpoisoned(&self.queue)
    }

    fn enter(self: &Arc<Self>, mode: Mode, rules: Caching, patience: Patience, route: &Arc<str>) -> Entered {
        let now = self.clock.now();
        let (mut entry, mut answer) = (self.entry(), None);
        debug_assert!(!entry.removed, "removed under the table's lock");
        let arrival = entry.queue.arrive(
            mode,
            patience,
            now,
            |grant| grant.evidence.holds(now),
            || {
                let (sender, receiver) = oneshot::channel();
                answer = Some(receiver);
                Caller { answer: sender, route: route.clone(), rules, patience }
            },
        );
        match (arrival, answer) {
            (Arrival::Start(started), _) => {
                entry.is_of(route);
                Entered::Started(self.tenure(started))
            }
            (Arrival::Wait { attend }, Some(answer)) => {
                if entry.queue.is_urgent(now) {
                    self.look.notify_one();
                }
                let attend = attend.then(|| self.clone());
                Entered::Waiting { answer, place: Place { slot: self.clone() }, attend }
            }
            (Arrival::Full, _) => Entered::Full,
            (Arrival::Busy | Arrival::Wait { .. }, _) => Entered::Busy,
        }
    }

    fn tenure(self: &Arc<Self>, started: Started<Grant>) -> Tenure {
        Tenure::of_slot(started.credentials, started.number, self.clone())
    }

    // ---- for whoever looks

    /// Shows what is known at this moment; nothing can change meanwhile, so it has to be quick.
    pub(super) fn look<R>(&self, look: impl FnOnce(Looked<'_>) -> R) -> R {
        let entry = self.entry();
        let waiting = entry.queue.in_line().map(|(mode, since, caller)| (mode, since, &caller.route));
        look(Looked {
            held: entry.queue.glimpse(),
            route: entry.route.as_ref(),
            waiting: &mut { waiting },
            elsewhere: self.behind.load(Ordering::Relaxed),
        })
    }

    // ---- for a request in flight

    /// G for one more dispatch.
    pub(super) fn next_number(&self) -> Option<u32> {
        self.entry().queue.next_number()
    }

    /// A request is over; `known`: and so is everything that it started upstream.
    pub(super) fn ended(self: &Arc<Self>, known: bool) {
        let now = self.clock.now();
        {
            let mut entry = self.entry();
            if !known {
                entry.queue.close(Cause::Retired);
            }
            entry.queue.ended(now);
        }
        self.start_waiting();
    }

    /// Starts whoever may start, in order, and wakes the key's task if it has something to do.
    pub(super) fn start_waiting(self: &Arc<Self>) {
        let now = self.clock.now();
        loop {
            let mut entry = self.entry();
            entry.queue.forget(|caller| caller.answer.is_closed());
            let Some((caller, started)) = entry.queue.start_next(now, |grant| grant.evidence.holds(now))
            else {
                if entry.queue.is_urgent(now) {
                    self.look.notify_one();
                }
                return;
            };
            entry.is_of(&caller.route);
            // Not under the lock: a caller that has just gone gives its tenure back in here.
            drop(entry);
            caller.answer.send(Ok(self.tenure(started))).ok();
        }
    }

    // ---- for the task that works for the key

    /// Somebody may have changed something.
    pub(super) async fn changed(&self) {
        self.look.notified().await;
    }

    /// How the first of those who wait wants the key; `None` when nobody waits.
    pub(super) fn wanted(&self) -> Option<(Mode, Caching)> {
        let mut entry = self.entry();
        entry.queue.forget(|caller| caller.answer.is_closed());
        entry.queue.wanted().map(|(mode, caller)| (mode, caller.rules))
    }

    pub(super) fn granted(self: &Arc<Self>, grant: Grant, mode: Mode, rules: Caching) {
        self.behind.store(false, Ordering::Relaxed);
        self.entry().queue.granted(grant, mode, rules, self.clock.now());
        self.start_waiting();
    }

    pub(super) fn contended(&self) {
        self.entry().queue.contended(self.clock.now());
    }

    /// Nothing is started under the tenure any more.
    pub(super) fn close(&self, cause: Cause) {
        self.entry().queue.close(cause);
    }

    /// The lock node was taken away by somebody else.
    pub(super) fn taken_away(&self) {
        let mut entry = self.entry();
        entry.queue.close(Cause::TakenAway);
        if let Some(grant) = entry.queue.credentials() {
            grant.evidence.revoke();
        }
    }

    pub(super) fn due(&self) -> Due {
        self.entry().queue.due(self.clock.now())
    }

    /// Gives the tenure up if it is due, in one step: nothing can be started in between. Whether nothing is held.
    pub(super) fn take_if_due(&self, told: impl FnOnce(Ended)) -> bool {
        let now = self.clock.now();
        let mut entry = self.entry();
        let ends = entry.queue.due(now) == Due::End;
        if ends && let Some(ended) = entry.queue.take(now) {
            told(ended);
        }
        ends
    }

    /// Another holder is before us: those who do not wait leave. An error when nobody is left.
    pub(super) fn dismiss_impatient(&self) -> Result<(), NotGranted> {
        self.behind.store(true, Ordering::Relaxed);
        let (leaving, left) = {
            let mut entry = self.entry();
            let leaving = entry.queue.dismiss(|caller| caller.patience == Patience::None);
            (leaving, entry.queue.waiting())
        };
        for caller in leaving {
            caller.answer.send(Err(NotGranted::Locked)).ok();
        }
        if left == 0 { Err(NotGranted::Locked) } else { Ok(()) }
    }

    /// No lock can be had: everybody who waits is told why.
    pub(super) fn refuse(&self, why: &NotGranted) {
        let leaving = self.entry().queue.dismiss(|_| true);
        for caller in leaving {
            caller.answer.send(Err(why.clone())).ok();
        }
    }

    /// `None` while something is in flight or nothing is held.
    pub(super) fn idle_since(&self) -> Option<Boot> {
        self.entry().queue.idle_since()
    }

    /// Ends an idle tenure to make room for others; whether it was idle.
    pub(super) fn evict(&self) -> bool {
        let evicted = self.entry().queue.evict();
        if evicted {
            self.look.notify_one();
        }
        evicted
    }
}

/// The place of one waiting request. Dropping it gives the place up; a tenure that was granted in the same moment is
/// given back by the answer's own drop.
pub struct Place {
    slot: Arc<Slot>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let anybody = self.slot.entry().queue.forget(|caller| caller.answer.is_closed());
        if !anybody {
            self.slot.look.notify_one();
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
