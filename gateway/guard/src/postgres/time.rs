//! What this guard knows of the store's time: milliseconds that guards of the store have seen pass, in the database.
//!
//! Only beats move it. A beat adds what its guard has seen pass since its last one, and only if nobody else has moved
//! the time since: so it never runs faster than the clock of any guard, whoever was stopped meanwhile. What may have
//! passed and stands nowhere yet is bounded from what this guard has seen: its last beat but one came before whatever
//! moved the time last.

use std::time::Duration;

use fencegate_process::clock::Boot;

/// The last two beats of this guard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// When the last beat but one was sent.
    before: Boot,
    /// When the last one was sent, and answered.
    sent: Boot,
    answered: Boot,
    /// Milliseconds, as the last one was told; and what named that moment.
    time: i64,
    tick: i64,
}

impl Passed {
    /// Before the first beat. `sent` is before this instance was made.
    pub(super) fn new(sent: Boot) -> Self {
        Self { before: sent, sent, answered: sent, time: 0, tick: -1 }
    }

    /// What a beat that is sent now may add, and to which moment.
    pub(super) fn addition(&self, now: Boot) -> (i64, Duration) {
        (self.tick, now.since(self.answered))
    }

    pub(super) fn beaten(&mut self, sent: Boot, answered: Boot, time: i64, tick: i64) {
        *self = Self { before: self.sent, sent, answered, time, tick };
    }

    /// The most that may have passed of the store's time without being written.
    pub(super) fn unwritten(&self, now: Boot) -> Duration {
        now.since(self.before)
    }

    /// About now, in milliseconds of the store's time: none more than it is.
    pub(super) fn time(&self, now: Boot) -> i64 {
        let since = i64::try_from(now.since(self.answered).as_millis()).unwrap_or(i64::MAX / 4);
        self.time.saturating_add(since)
    }

    /// A moment of the store's time on our clock: none earlier than it comes.
    pub(super) fn on_our_clock(&self, time: i64) -> Boot {
        match u64::try_from(time - self.time) {
            Ok(ahead) => self.answered + Duration::from_millis(ahead),
            Err(_) => self.answered - Duration::from_millis((time - self.time).unsigned_abs()),
        }
    }
}
