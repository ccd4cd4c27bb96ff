//! This guard's view of the store's time: the milliseconds that guards of the store have seen pass, as the database
//! has them.
//!
//! Only heartbeats move it. A heartbeat adds the time that its guard has seen pass since its own last heartbeat, and
//! only if no other guard has moved the time since. So the store's time never runs faster than the clock of any
//! guard, even if guards stand still. The time that is not written yet is bounded, too: this guard's last heartbeat
//! but one came before the last move of the time.

use std::time::Duration;

use fencegate_process::clock::BootInstant;

/// The last two heartbeats of this guard.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeartbeatClockSamples {
    /// The instant at which the last heartbeat but one was sent.
    before: BootInstant,
    /// The instants at which the last heartbeat was sent, and answered.
    sent: BootInstant,
    answered: BootInstant,
    /// The store's time in milliseconds, as of the last heartbeat, and the number of that moment.
    time: i64,
    tick: i64,
}

impl HeartbeatClockSamples {
    /// The state before the first heartbeat. `sent`: an instant before this instance was made.
    pub(super) fn new(sent: BootInstant) -> Self {
        Self { before: sent, sent, answered: sent, time: 0, tick: -1 }
    }

    /// The number of the moment to which a heartbeat sent now may add time, and the time that it may add.
    pub(super) fn next_clock_advance(&self, now: BootInstant) -> (i64, Duration) {
        (self.tick, now.since(self.answered))
    }

    pub(super) fn record_heartbeat(
        &mut self,
        sent: BootInstant,
        answered: BootInstant,
        time: i64,
        tick: i64,
    ) {
        *self = Self { before: self.sent, sent, answered, time, tick };
    }

    /// The most time that may have passed and is not written yet.
    pub(super) fn max_unwritten_clock_time(&self, now: BootInstant) -> Duration {
        now.since(self.before)
    }

    /// The present time in milliseconds of the store's time: the time of the last heartbeat's reply, and the time
    /// since that reply. It is never ahead of the true time. It does not count what other guards have added since.
    pub(super) fn earliest_possible_time(&self, now: BootInstant) -> i64 {
        let since = i64::try_from(now.since(self.answered).as_millis()).unwrap_or(i64::MAX / 4);
        self.time.saturating_add(since)
    }

    /// The present time in milliseconds of the store's time, never behind the true time: it counts all that
    /// other guards may have added since this guard's last heartbeat.
    pub(super) fn latest_possible_time(&self, now: BootInstant) -> i64 {
        let since = i64::try_from(self.max_unwritten_clock_time(now).as_millis()).unwrap_or(i64::MAX / 4);
        self.time.saturating_add(since)
    }

    /// A moment of the store's time on this machine's clock; never earlier than the true one.
    pub(super) fn local_instant(&self, time: i64) -> BootInstant {
        match u64::try_from(time - self.time) {
            Ok(ahead) => self.answered + Duration::from_millis(ahead),
            Err(_) => self.answered - Duration::from_millis((time - self.time).unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_nanos(milliseconds * 1_000_000)
    }

    /// The store's time as the heartbeats of two guards move it.
    #[derive(Default)]
    struct SharedClockModel {
        time: i64,
        tick: i64,
    }

    impl SharedClockModel {
        /// A heartbeat that is answered after `takes`. The database reads it at once.
        fn exchange_heartbeat(
            &mut self,
            guard: &mut HeartbeatClockSamples,
            now: BootInstant,
            takes: Duration,
        ) {
            let (tick, passed) = guard.next_clock_advance(now);
            if tick == self.tick {
                self.time += i64::try_from(passed.as_millis()).expect("short");
                self.tick += 1;
            }
            guard.record_heartbeat(now, now + takes, self.time, self.tick);
        }
    }

    /// With several guards moving the store's time, no guard reads it ahead of all clocks, and the latest
    /// possible time of each guard is never behind it.
    #[test]
    fn shared_time_stays_within_guard_bounds() {
        for offset in [1, 100, 300, 459] {
            let mut store = SharedClockModel::default();
            let mut guards = [HeartbeatClockSamples::new(at(1000)), HeartbeatClockSamples::new(at(1000))];
            let mut was_behind = false;
            for (beat, later) in (0..8).flat_map(|beat| [(beat, 0), (beat, offset)]) {
                let passed = beat * 500 + later;
                let now = at(1000 + passed);
                store.exchange_heartbeat(&mut guards[usize::from(later > 0)], now, Duration::from_millis(40));
                for guard in &guards {
                    let known = guard.earliest_possible_time(now);
                    let latest = guard.latest_possible_time(now);
                    assert!(known <= i64::try_from(passed).expect("short"), "ahead of all clocks");
                    assert!(latest >= store.time, "{latest} of {}, {offset}, beat {beat}", store.time);
                    was_behind |= known < store.time;
                }
            }
            assert!(was_behind, "not exercised: {offset}");
        }
    }
}
