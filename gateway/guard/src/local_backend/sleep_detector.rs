//! Detects that this process stood still.
//!
//! A wait by the clock bounds an execution only while the service runs. A machine that sleeps, a container that is
//! paused and a virtual machine that is moved stop the guard and the service beside it together, and the clock goes
//! on. So the time in which the guard itself did nothing does not count for any wait.

use std::{collections::VecDeque, time::Duration};

use fencegate_process::clock::BootInstant;

/// The last instant at which this process was seen running, and the times in which it did not run.
#[derive(Debug, Default)]
pub(super) struct ProcessPauseDetector {
    /// `None` until the regular checks begin.
    last: Option<BootInstant>,
    /// Whether the regular checks run now. While a guard drains they do not, and its sleeps are not known.
    pub(super) is_watched: bool,
    sleeps: VecDeque<(BootInstant, BootInstant)>,
}

/// A longer gap than this is a sleep. The check comes every 100 ms; a busy machine may be late by less.
const ASLEEP: Duration = Duration::from_secs(1);

/// The number of sleeps kept. The two oldest are merged with the time between them, so no wait gets shorter.
const MOST: usize = 64;

impl ProcessPauseDetector {
    /// Begins the regular checks, every 100 ms.
    pub(super) fn start_pause_detection(&mut self, now: BootInstant) {
        self.last = Some(now);
        self.is_watched = true;
    }

    /// Ends the regular checks. A gap between two calls still counts as a sleep, which is safe, because it can
    /// only make a wait longer.
    pub(super) fn stop_pause_detection(&mut self) {
        self.is_watched = false;
    }

    /// Records that this process runs at `now`. Returns the time since the previous call, if that is long enough
    /// to be a sleep.
    pub(super) fn detect_pause(&mut self, now: BootInstant) -> Option<Duration> {
        let last = self.last?;
        self.last = Some(now);
        let gap = now.since(last);
        if gap <= ASLEEP {
            return None;
        }
        self.sleeps.push_back((last, now));
        if self.sleeps.len() > MOST {
            let oldest = self.sleeps.pop_front();
            if let (Some((from, _)), Some(next)) = (oldest, self.sleeps.front_mut()) {
                next.0 = from;
            }
        }
        Some(gap)
    }

    /// The time that this process has slept since the instant `since`.
    pub(super) fn paused_since(&self, since: BootInstant) -> Duration {
        self.sleeps.iter().map(|(from, to)| to.since((*from).max(since))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn only_gaps_after_start_are_sleeps() {
        let mut detector = ProcessPauseDetector::default();
        assert_eq!(detector.detect_pause(at(5)), None);
        assert_eq!(detector.detect_pause(at(50)), None, "nobody looks regularly yet");
        detector.start_pause_detection(at(60));
        assert_eq!(detector.detect_pause(at(61)), None);
        assert_eq!(detector.detect_pause(at(75)), Some(Duration::from_secs(14)));
        assert_eq!(detector.paused_since(at(70)), Duration::from_secs(5));
        assert_eq!(detector.paused_since(at(76)), Duration::ZERO);
    }

    /// The list of sleeps is bounded, and the time slept since any moment is still counted in full.
    #[test]
    fn merged_sleeps_keep_total_duration() {
        let mut detector = ProcessPauseDetector::default();
        detector.start_pause_detection(at(0));
        for n in 1..=300 {
            assert_eq!(detector.detect_pause(at(2 * n)), Some(Duration::from_secs(2)));
        }
        assert_eq!((detector.paused_since(at(0)), detector.sleeps.len()), (Duration::from_secs(600), MOST));
        assert_eq!(detector.paused_since(at(599)), Duration::from_secs(1));
    }
}
