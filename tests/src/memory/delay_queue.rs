//! One direction of a connection: messages come out later, in the order in which they were put in.

use std::collections::VecDeque;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct DelayQueue<T>(VecDeque<(Instant, T)>);

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> DelayQueue<T> {
    /// Puts in a message, which comes out at `due`, but not before the messages that were put in earlier.
    pub(super) fn put(&mut self, due: Instant, item: T) {
        let due = self.0.back().map_or(due, |(before, _)| due.max(*before));
        self.0.push_back((due, item));
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<T> {
        let (due, _) = self.0.front()?;
        if *due > now { None } else { self.0.pop_front().map(|(_, item)| item) }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.front().map(|(due, _)| *due)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
