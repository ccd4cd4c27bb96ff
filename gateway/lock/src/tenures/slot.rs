//! The queues of all keys, shared by all workers: where a warm key is handed over without a word to any other thread.

mod behind;
mod standing;
pub mod table;
mod turns;

use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    plan::{Caching, LockSite, Mode},
    token::Token,
};
use fencegate_process::{
    clock::{Boot, SharedClock},
    sync::{Mutex, MutexGuard},
};
use tokio::sync::{Notify, oneshot};

use self::standing::Standing;
use super::{
    chain::NotInside,
    queue::{Arrival, Patience, Queue, Started},
    tenure::{Shared, Tenure},
    tenured::Glimpse,
    wish::Waits,
};
use crate::{not_granted::NotGranted, recipe::grant::Grant};

/// How one waiting request is told.
pub type Answer = Result<Tenure, NotGranted>;

/// One key.
pub struct Slot {
    pub key: ResourceKey,
    /// Where its lock lies.
    pub site: LockSite,
    queue: Mutex<Entry>,
    /// Tells the task that works for the key to look again.
    look: Notify,
    clock: SharedClock,
}

#[derive(Default)]
struct Entry {
    queue: Queue<Caller, Grant>,
    /// Of the request that was started last, for whoever looks.
    route: Option<Arc<str>>,
    /// Taken out of the table: whoever still has the slot must ask the table again.
    removed: bool,
    standing: Standing,
    /// How often everything that was held or asked for became too old to be used.
    outdated: u64,
}

struct Caller {
    answer: oneshot::Sender<Answer>,
    route: Arc<str>,
    rules: Caching,
    patience: Patience,
    waits: Waits,
    delay: Option<Duration>,
}

/// How a request wants a key.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    pub mode: Mode,
    pub rules: Caching,
    pub patience: Patience,
    pub waits: Waits,
    /// See [`crate::tenures::wish::Wish`].
    pub delay: Option<Duration>,
    pub route: &'a Arc<str>,
}

/// How the first of those who wait wants the key.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstWish {
    pub(super) mode: Mode,
    rules: Caching,
    pub(super) delay: Option<Duration>,
    /// What is asked for now becomes too old when this has grown.
    outdated: u64,
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
    /// It may wait only where the key is kept, and that is not here.
    NotHere,
}

impl Entry {
    /// Somebody waits who may be sent on. Whether the way is to be looked for now, by a task that waits for the lock.
    fn asks_now(&mut self, now: Boot) -> bool {
        self.queue.credentials().is_none() && self.standing.asks_now(now)
    }

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
    /// For so long a delay is sat out yet.
    pub(super) rest: Option<Duration>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Slot {
    fn new(key: ResourceKey, site: LockSite, clock: SharedClock) -> Self {
        let queue = Mutex::new(Entry::default());
        Self { key, site, queue, look: Notify::new(), clock }
    }

    fn entry(&self) -> MutexGuard<'_, Entry> {
        unpoisoned(&self.queue)
    }

    fn enter(self: &Arc<Self>, wants: Wants<'_>) -> Entered {
        let Wants { mode, rules, patience, waits, delay, route } = wants;
        let now = self.clock.now();
        let (mut entry, mut answer) = (self.entry(), None);
        debug_assert!(!entry.removed, "removed under the table's lock");
        if waits == Waits::AtHolder && !self.keeps(&entry, now) {
            return Entered::NotHere;
        }
        if matches!(patience, Patience::Behind(most) if entry.queue.waiting() >= most) {
            // Those who have gone and were not taken out yet take nobody's place.
            entry.queue.forget(|caller| caller.answer.is_closed());
        }
        let arrival = entry.queue.arrive(
            mode,
            patience,
            now,
            |grant| grant.evidence.holds(now),
            || {
                let (sender, receiver) = oneshot::channel();
                answer = Some(receiver);
                Caller { answer: sender, route: route.clone(), rules, patience, waits, delay }
            },
        );
        match (arrival, answer) {
            (Arrival::Start(started), _) => {
                entry.is_of(route);
                Entered::Started(self.tenure(started))
            }
            (Arrival::Wait { attend }, Some(answer)) => {
                // Nobody is sent on from here while it is held here; then the look would be for nothing.
                let asks = waits == Waits::Anywhere && entry.asks_now(now);
                if asks || entry.queue.is_urgent(now) {
                    self.look.notify_one();
                }
                let attend = attend.then(|| self.clone());
                Entered::Waiting { answer, place: Place { slot: self.clone() }, attend }
            }
            (Arrival::Full, _) => Entered::Full,
            (Arrival::Busy | Arrival::Wait { .. }, _) => Entered::Busy,
        }
    }

    /// May a request that another gateway has sent wait here? Under an open tenure that is ours alone, or while we get
    /// one and nobody was before us: a lock node says whose it is before its gateway has been told that it holds.
    fn keeps(&self, entry: &Entry, now: Boot) -> bool {
        match entry.queue.glimpse() {
            Some(held) => {
                held.mode == Mode::Exclusive && !held.closed && held.credentials.evidence.holds(now)
            }
            None => entry.queue.is_attended() && entry.standing.is_first(),
        }
    }

    fn tenure(self: &Arc<Self>, started: Started<Grant>) -> Tenure {
        Tenure::of_shared(started.credentials, started.number, self.clone())
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
            elsewhere: entry.standing.is_behind(),
            rest: entry.standing.rest(self.clock.now()),
        })
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
}

impl Shared for Slot {
    fn next_number(&self, first: u32) -> Option<u32> {
        self.entry().queue.next_number(first)
    }

    fn call(self: Arc<Self>, from: Token, mode: Mode) -> Result<(Tenure, Mode), NotInside> {
        let now = self.clock.now();
        let mut entry = self.entry();
        let held = entry.queue.glimpse().ok_or(NotInside::NotHere)?;
        let Grant { epoch, sequence, .. } = held.credentials;
        if (*epoch, *sequence) != (from.number(), from.sequence()) {
            return Err(NotInside::NotHere);
        }
        let mode_held = held.mode;
        let started = entry.queue.call(from.dispatch(), mode, |grant| grant.evidence.holds(now))?;
        drop(entry);
        Ok((self.tenure(started), mode_held))
    }

    fn retire(&self) {
        self.entry().queue.unknown();
    }

    fn ended(self: Arc<Self>, first: u32, known: bool) {
        let now = self.clock.now();
        {
            let mut entry = self.entry();
            if !known {
                entry.queue.unknown();
            }
            entry.queue.ended(first, now);
        }
        self.start_waiting();
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

#[cfg(test)]
mod tests;
