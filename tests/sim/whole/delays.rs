//! The latency of messages between hosts, and the times in which they are blocked.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    net::IpAddr,
    time::Duration,
};

use fencegate_tests::memory::SeededRng;
use tokio::time::Instant;

/// The latencies between all hosts.
pub(super) struct NetworkDelays {
    /// The time until which bytes from one host to another are held back.
    blocked: RefCell<BTreeMap<(IpAddr, IpAddr), Instant>>,
    /// The maximum latency.
    slowness: Cell<Duration>,
    dice: SeededRng,
}

const QUICK: Duration = Duration::from_millis(2);

impl NetworkDelays {
    pub(super) fn new(seed: u64) -> Self {
        Self { blocked: RefCell::default(), slowness: Cell::new(QUICK), dice: SeededRng::new(seed) }
    }

    /// Holds back bytes from one host to another for this time. An existing block stays as it is: two blocks in
    /// succession would last longer than the time limits allow for.
    pub(super) fn delay_all(&self, from: IpAddr, to: IpAddr, time: Duration) {
        let now = Instant::now();
        let mut blocked = self.blocked.borrow_mut();
        let until = blocked.entry((from, to)).or_insert(now);
        if *until <= now {
            *until = now + time;
        }
    }

    /// Sets the maximum latency of all messages from now on.
    pub(super) fn set_max_delay(&self, most: Duration) {
        self.slowness.set(most.max(QUICK));
    }

    /// The time at which a byte that is sent now arrives.
    pub(super) fn arrival(&self, from: IpAddr, to: IpAddr) -> Instant {
        let now = Instant::now();
        let passes = self.blocked.borrow().get(&(from, to)).map_or(now, |until| now.max(*until));
        passes + self.dice.within(&(Duration::ZERO..self.slowness.get()))
    }
}
