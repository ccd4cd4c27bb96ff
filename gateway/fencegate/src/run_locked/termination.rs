//! When a command is asked to end and when it is killed, so that it is dead before another can hold its lock.

use std::time::Duration;

use fencegate_process::clock::BootInstant;

/// The time between the kill and the end of the proof: sending the signal and ending the process take a while.
pub(super) const KILLED_BEFORE: Duration = Duration::from_millis(200);

/// The times for the end of one command, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct TerminationSchedule {
    /// Until when the lock is proven. Each renewal moves it on.
    until: BootInstant,
    /// Between the request to end and the kill.
    grace: Duration,
    /// When the command was, or will be, asked to end.
    terminate_from: Option<BootInstant>,
    /// How much later this process acts than the other one that does the same.
    delay: Duration,
}

/// The step that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminationStep {
    /// Nothing, until then.
    Wait(BootInstant),
    Terminate,
    Kill,
}

impl TerminationSchedule {
    pub(super) fn new(until: BootInstant, grace: Duration) -> Self {
        Self { until, grace, terminate_from: None, delay: Duration::ZERO }
    }

    /// The same times for the process that steps in if the other one fails.
    pub(super) fn with_delay(self, after: Duration) -> Self {
        Self { delay: after, ..self }
    }

    /// The lock is proven until then. An end that has begun goes on: a command that was asked to end is not told to
    /// continue.
    pub(super) fn set_proven_until(&mut self, until: BootInstant) {
        self.until = until;
    }

    /// The command must end now, whatever is proven. Only the first call counts.
    pub(super) fn begin_termination(&mut self, now: BootInstant) {
        self.terminate_from.get_or_insert(now);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.terminate_from.is_some()
    }

    /// `told`: the command was asked already.
    pub(super) fn next_step(&self, now: BootInstant, told: bool) -> TerminationStep {
        let (ask, kill) = (self.terminate_at(), self.kill_at());
        match told {
            _ if now >= kill => TerminationStep::Kill,
            true => TerminationStep::Wait(kill),
            false if now >= ask => TerminationStep::Terminate,
            false => TerminationStep::Wait(ask.min(kill)),
        }
    }

    fn terminate_at(&self) -> BootInstant {
        let last = self.deadline() - self.grace;
        self.terminate_from.map_or(last, |asked| asked.min(last)) + self.delay
    }

    fn kill_at(&self) -> BootInstant {
        self.terminate_from.map_or(self.deadline(), |asked| (asked + self.grace).min(self.deadline()))
            + self.delay
    }

    fn deadline(&self) -> BootInstant {
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

    #[test]
    fn without_a_renewal_it_is_asked_and_then_killed_before_the_end_of_the_proof() {
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

    #[test]
    fn a_renewal_moves_it_on() {
        let mut moments = TerminationSchedule::new(ms(10_000), GRACE);
        moments.set_proven_until(ms(11_000));
        assert_eq!(moments.next_step(ms(9_000), false), TerminationStep::Wait(ms(9_800)));
    }

    #[test]
    fn who_was_asked_early_has_the_grace_and_not_more() {
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

    #[test]
    fn a_lock_that_is_gone_leaves_no_time() {
        let mut moments = TerminationSchedule::new(ms(10_000), GRACE);
        moments.set_proven_until(ms(0));
        assert_eq!(moments.next_step(ms(5_000), false), TerminationStep::Kill);
    }

    #[test]
    fn who_steps_in_comes_after_the_other_one_and_before_the_end() {
        let moments = TerminationSchedule::new(ms(10_000), GRACE).with_delay(Duration::from_millis(50));
        assert_eq!(moments.next_step(ms(8_800), false), TerminationStep::Wait(ms(8_850)));
        assert_eq!(moments.next_step(ms(9_800), true), TerminationStep::Wait(ms(9_850)));
    }
}
