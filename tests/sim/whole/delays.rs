//! How long it takes from one host to another, and when nothing passes.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    net::IpAddr,
    time::Duration,
};

use fencegate_tests::memory::SeededRng;
use tokio::time::Instant;

/// Between all hosts.
pub(super) struct NetworkDelays {
    /// Until when nothing passes from one host to another.
    blocked: RefCell<BTreeMap<(IpAddr, IpAddr), Instant>>,
    /// How long it takes to pass, at most.
    slowness: Cell<Duration>,
    dice: SeededRng,
}

const QUICK: Duration = Duration::from_millis(2);

impl NetworkDelays {
    pub(super) fn new(seed: u64) -> Self {
        Self { blocked: RefCell::default(), slowness: Cell::new(QUICK), dice: SeededRng::new(seed) }
    }

    /// From now on bytes arrive after that time only. An existing block stays as it is: two blocks in a row would hold
    /// back for longer than any time limit allows for.
    pub(super) fn delay_all(&self, from: IpAddr, to: IpAddr, time: Duration) {
        let now = Instant::now();
        let mut blocked = self.blocked.borrow_mut();
        let until = blocked.entry((from, to)).or_insert(now);
        if *until <= now {
            *until = now + time;
        }
    }

    /// From now on everything takes up to that long.
    pub(super) fn set_max_delay(&self, most: Duration) {
        self.slowness.set(most.max(QUICK));
    }

    /// When what is sent now arrives.
    pub(super) fn arrival(&self, from: IpAddr, to: IpAddr) -> Instant {
        let now = Instant::now();
        let passes = self.blocked.borrow().get(&(from, to)).map_or(now, |until| now.max(*until));
        passes + self.dice.within(&(Duration::ZERO..self.slowness.get()))
    }
}
