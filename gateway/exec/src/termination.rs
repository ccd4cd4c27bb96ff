//! The times at which a command must end and at which it is killed, so that it is dead before another holder can
//! have its lock.

use std::time::Duration;

use fencegate_process::clock::BootInstant;

/// The time between the kill and the end of the lock validity: sending the signal and ending the process take a
/// while.
pub(super) const KILLED_BEFORE: Duration = Duration::from_millis(200);

/// The times for the end of one command, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct TerminationSchedule {
    /// The instant until which the lock is valid. Each renewal moves it on.
    until: BootInstant,
    /// The time between the request to end and the kill.
    grace: Duration,
    /// The instant at which the command was, or will be, requested to end.
    terminate_from: Option<BootInstant>,
    /// The time by which a standby process acts later than the process that it stands by for.
    delay: Duration,
}

/// The step that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminationStep {
    /// Nothing is due until this instant.
    Wait(BootInstant),
    Terminate,
    Kill,
}

impl TerminationSchedule {
    pub(super) fn new(until: BootInstant, grace: Duration) -> Self {
        Self { until, grace, terminate_from: None, delay: Duration::ZERO }
    }

    /// The schedule of a standby process, which acts `after` later, if the first process has failed to act.
    pub(super) fn with_standby_kill_delay(self, after: Duration) -> Self {
        Self { delay: after, ..self }
    }

    /// Sets the instant until which the lock is valid. A termination that has begun goes on: a command that was
    /// requested to end is not continued.
    pub(super) fn set_proven_until(&mut self, until: BootInstant) {
        self.until = until;
    }

    /// Begins the termination now, whatever the lock validity. Only the first call counts.
    pub(super) fn begin_termination(&mut self, now: BootInstant) {
        self.terminate_from.get_or_insert(now);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.terminate_from.is_some()
    }

    /// The step that is due at `now`. `requested`: whether the request to end was sent already.
    pub(super) fn next_step(&self, now: BootInstant, requested: bool) -> TerminationStep {
        let ask = self.terminate_at();
        let kill = self.kill_at();
        match requested {
            _ if now >= kill => TerminationStep::Kill,
            true => TerminationStep::Wait(kill),
            false if now >= ask => TerminationStep::Terminate,
            false => TerminationStep::Wait(ask.min(kill)),
        }
    }

    fn terminate_at(&self) -> BootInstant {
        let last = self.latest_kill_time() - self.grace;
        self.terminate_from.map_or(last, |requested| requested.min(last)) + self.delay
    }

    fn kill_at(&self) -> BootInstant {
        self.terminate_from.map_or(self.latest_kill_time(), |requested| {
            (requested + self.grace).min(self.latest_kill_time())
        }) + self.delay
    }

    fn latest_kill_time(&self) -> BootInstant {
        self.until - KILLED_BEFORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    fn ms(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    /// Without a renewal the program is asked to end, and then killed, before the lock validity ends.
    #[test]
    fn terminates_then_kills_before_deadline() {
        let moments = TerminationSchedule::new(ms(10_000), GRACE);
        assert_eq!(moments.next_step(ms(0), false), TerminationStep::Wait(ms(8_800)));
        assert_eq!(moments.next_step(ms(8_800), false), TerminationStep::Terminate);
        assert_eq!(moments.next_step(ms(8_800), true), TerminationStep::Wait(ms(9_800)));
        assert_eq!(moments.next_step(ms(9_800), true), TerminationStep::Kill);
        assert_eq!(
            moments.next_step(ms(9_900), false),
            TerminationStep::Kill,
            "whoever wakes late asks nobody"
        );
    }

    /// A renewal moves the termination to the end of the new lock validity.
    #[test]
    fn renewal_postpones_termination() {
        let mut moments = TerminationSchedule::new(ms(10_000), GRACE);
        moments.set_proven_until(ms(11_000));
        assert_eq!(moments.next_step(ms(9_000), false), TerminationStep::Wait(ms(9_800)));
    }

    /// A program that was asked early has its grace and not more, and less where the lock validity ends before.
    #[test]
    fn early_termination_has_grace_at_most() {
        let mut moments = TerminationSchedule::new(ms(10_000), GRACE);
        moments.begin_termination(ms(2_000));
        moments.begin_termination(ms(2_500));
        assert_eq!(moments.next_step(ms(2_000), false), TerminationStep::Terminate);
        assert_eq!(moments.next_step(ms(2_000), true), TerminationStep::Wait(ms(3_000)));
        assert_eq!(moments.next_step(ms(3_000), true), TerminationStep::Kill);
        moments.set_proven_until(ms(2_800));
        assert_eq!(
            moments.next_step(ms(2_600), true),
            TerminationStep::Kill,
            "less is proven than the grace takes"
        );
    }

    /// A lock that is lost leaves the program no time.
    #[test]
    fn lost_lock_kills_at_once() {
        let mut moments = TerminationSchedule::new(ms(10_000), GRACE);
        moments.set_proven_until(ms(0));
        assert_eq!(moments.next_step(ms(5_000), false), TerminationStep::Kill);
    }

    /// The standby process acts after the first process would have, and before the lock validity ends.
    #[test]
    fn backup_acts_after_primary_before_deadline() {
        let moments =
            TerminationSchedule::new(ms(10_000), GRACE).with_standby_kill_delay(Duration::from_millis(50));
        assert_eq!(moments.next_step(ms(8_800), false), TerminationStep::Wait(ms(8_850)));
        assert_eq!(moments.next_step(ms(9_800), true), TerminationStep::Wait(ms(9_850)));
    }
}
