//! Turns acknowledged writes into the session deadline, before which the server cannot have expired the session.

use std::time::Duration;

use fencegate_policies::plan::ZooKeeperSettings;

use fencegate_process::clock::BootInstant;

/// Heartbeat times and margin of one session, from its negotiated timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatSchedule {
    /// Negotiated session timeout, T.
    pub timeout: Duration,
    /// Time between two committed writes.
    pub period: Duration,
    /// The deadline lies this long before the earliest possible expiry.
    pub margin: Duration,
    /// A longer time than this between two sends is a gap, after which it is unknown what the leader has received from
    /// the session.
    pub gap: Duration,
    /// The longest time that a follower takes to tell the leader that the session is alive.
    pub relay: Duration,
}

impl HeartbeatSchedule {
    pub fn new(policy: &ZooKeeperSettings, negotiated: Duration) -> Self {
        let period = ZooKeeperSettings::heartbeat_interval(negotiated);
        let relay = policy.tick / 2;
        Self { timeout: negotiated, period, margin: policy.margin(negotiated), gap: period + relay, relay }
    }

    /// The time for which an acknowledged write proves the session alive, counted from its sending.
    pub fn validity_duration(&self) -> Duration {
        self.timeout.saturating_sub(self.margin)
    }

    /// The session deadline from a write that was sent at `sent` and acknowledged.
    pub fn deadline(&self, sent: BootInstant) -> BootInstant {
        sent + self.validity_duration()
    }

    /// Whether two heartbeats fit before the margin, and the margin is large enough.
    pub(crate) fn leaves_time_for_heartbeats(&self, policy: &ZooKeeperSettings) -> bool {
        self.validity_duration() >= self.period * 2
            && self.margin >= ZooKeeperSettings::least_margin(self.timeout, policy.tick)
    }
}

/// The heartbeats of one session.
///
/// The leader counts the session's timeout from the last message that was relayed to it, and a follower relays messages
/// only every half tick. So a heartbeat proves the session alive from the time of its sending, if the heartbeats before
/// it came in rhythm. After a gap it does not: a follower may acknowledge the heartbeat and die before it informs the
/// leader. Such a heartbeat extends nothing. The first heartbeat that extends the deadline again is one sent after the
/// leader has been informed.
#[derive(Debug)]
pub(crate) struct HeartbeatTracker {
    rhythm: HeartbeatSchedule,
    previous: BootInstant,
    /// The time of the first heartbeat after the last gap. `None` before the first gap: the leader itself has made the
    /// session, so it knows of it.
    began: Option<BootInstant>,
}

impl HeartbeatTracker {
    /// `connecting`: the instant before the session was requested; the session was created after it.
    pub(crate) fn new(schedule: HeartbeatSchedule, connecting: BootInstant) -> Self {
        Self { rhythm: schedule, previous: connecting, began: None }
    }

    /// Call this when a heartbeat is passed to the client library, before it is awaited. `schedule`: the schedule that
    /// the session has now.
    pub(crate) fn record_sent(&mut self, now: BootInstant, schedule: HeartbeatSchedule) {
        self.rhythm = schedule;
        if now.since(self.previous) > self.rhythm.gap {
            self.began = Some(now);
        }
        self.previous = now;
    }

    /// The new deadline, if the last heartbeat was committed; `None` if it came too soon after a gap.
    pub(crate) fn acknowledged_deadline(&self) -> Option<BootInstant> {
        self.is_heartbeat_at_leader().then(|| self.rhythm.deadline(self.previous))
    }

    /// The time from the last heartbeat to the next. If the last heartbeat extended nothing, the next one comes as soon
    /// as it can extend the deadline.
    pub(crate) fn period(&self) -> Duration {
        if self.is_heartbeat_at_leader() {
            self.rhythm.period
        } else {
            self.rhythm.period.min(self.rhythm.relay)
        }
    }

    /// Whether the leader had been informed of the heartbeats since the last gap when the last heartbeat was sent.
    fn is_heartbeat_at_leader(&self) -> bool {
        self.began.is_none_or(|began| self.previous.since(began) >= self.rhythm.relay)
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::plan::AclMode;

    use super::*;

    const RHYTHM: HeartbeatSchedule = HeartbeatSchedule {
        timeout: Duration::from_secs(12),
        period: Duration::from_secs(1),
        margin: Duration::from_secs(3),
        gap: Duration::from_secs(2),
        relay: Duration::from_secs(1),
    };

    fn second(n: u64) -> BootInstant {
        BootInstant::from_nanos(n * 1_000_000_000)
    }

    fn policy(safety_margin: Option<Duration>) -> ZooKeeperSettings {
        ZooKeeperSettings {
            servers: vec!["127.0.0.1:2181".into()],
            root: "/fencegate".into(),
            session_timeout: Duration::from_secs(12),
            tick: Duration::from_secs(2),
            safety_margin,
            sessions: 1,
            acl: AclMode::Open,
            identities: Vec::new(),
            tls: None,
            digest: None,
        }
    }

    /// The gap of a schedule is a period plus the half tick after which a follower has informed its leader.
    #[test]
    fn schedule_follows_negotiated_timeout() {
        assert_eq!(HeartbeatSchedule::new(&policy(None), Duration::from_secs(12)), RHYTHM);
        let short = HeartbeatSchedule::new(&policy(None), Duration::from_millis(3000));
        assert_eq!((short.period, short.gap), (Duration::from_millis(500), Duration::from_millis(1500)));
    }

    /// A schedule is rejected if its deadline covers less than two heartbeats, because one late heartbeat would lose
    /// the session, or if its margin is below the minimum, because the session could expire before its deadline.
    #[test]
    fn schedule_needs_two_heartbeats_and_margin() {
        let sound = |timeout, margin| {
            let policy = policy(Some(Duration::from_millis(margin)));
            HeartbeatSchedule::new(&policy, Duration::from_millis(timeout))
                .leaves_time_for_heartbeats(&policy)
        };
        assert!(sound(12_000, 3000), "the least margin: a period and a tick");
        assert!(!sound(12_000, 2999));
        assert!(sound(12_000, 10_000), "two beats");
        assert!(!sound(12_000, 10_001) && !sound(12_000, 20_000));
    }

    /// An acknowledged heartbeat extends the session deadline from the time at which it was sent.
    #[test]
    fn heartbeat_extends_from_send_time() {
        let mut beats = HeartbeatTracker::new(RHYTHM, second(100));
        beats.record_sent(second(101), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), Some(second(101 + 12 - 3)));
    }

    /// The first heartbeat after a gap does not move the session deadline; the next one in rhythm does.
    #[test]
    fn first_heartbeat_after_gap_extends_nothing() {
        let mut beats = HeartbeatTracker::new(RHYTHM, second(100));
        beats.record_sent(second(103), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), None);
        beats.record_sent(second(104), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), Some(second(104 + 9)));
    }

    /// A heartbeat exactly at the limit of the gap extends the session deadline; one a nanosecond later does not.
    #[test]
    fn heartbeat_at_gap_limit_extends_deadline() {
        let mut beats = HeartbeatTracker::new(RHYTHM, second(100));
        beats.record_sent(second(102), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), Some(second(102 + 9)));
        beats.record_sent(second(104) + Duration::from_nanos(1), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), None);
    }

    /// A follower that receives a heartbeat after a gap informs its leader within half a tick; until then a second one
    /// proves no more than the first.
    #[test]
    fn heartbeat_after_gap_repeats_early() {
        let schedule = HeartbeatSchedule { relay: Duration::from_millis(100), ..RHYTHM };
        let ms = |n| second(200) + Duration::from_millis(n);
        let mut beats = HeartbeatTracker::new(schedule, second(100));
        beats.record_sent(ms(0), schedule);
        assert_eq!((beats.acknowledged_deadline(), beats.period()), (None, schedule.relay));
        beats.record_sent(ms(99), schedule);
        assert_eq!((beats.acknowledged_deadline(), beats.period()), (None, schedule.relay));
        beats.record_sent(ms(199), schedule);
        assert_eq!(
            (beats.acknowledged_deadline(), beats.period()),
            (Some(schedule.deadline(ms(199))), schedule.period)
        );
        // With a long tick and a short session the period is shorter than the time of a follower's relay.
        let schedule = HeartbeatSchedule { relay: Duration::from_secs(2), ..RHYTHM };
        let mut beats = HeartbeatTracker::new(schedule, second(100));
        for (at, moves) in [(200, false), (201, false), (202, true), (203, true)] {
            assert_eq!(beats.period(), RHYTHM.period, "never slower than the rhythm");
            beats.record_sent(second(at), schedule);
            assert_eq!(beats.acknowledged_deadline().is_some(), moves, "{at}");
        }
    }
}
