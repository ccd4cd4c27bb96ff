//! Turns acknowledged writes into a deadline: until when the server cannot have expired our session.

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
    /// Taken off the earliest possible expiry.
    pub margin: Duration,
    /// A longer time than this between two sends is a gap, after which we cannot know what the leader has heard of us.
    pub gap: Duration,
    /// How long a follower may take to tell the leader that it has heard of us.
    pub relay: Duration,
}

impl HeartbeatSchedule {
    pub fn new(policy: &ZooKeeperSettings, negotiated: Duration) -> Self {
        let (period, relay) = (ZooKeeperSettings::heartbeat(negotiated), policy.tick / 2);
        Self { timeout: negotiated, period, margin: policy.margin(negotiated), gap: period + relay, relay }
    }

    /// How long an acknowledged write proves the session, counted from its sending.
    pub fn proof_duration(&self) -> Duration {
        self.timeout.saturating_sub(self.margin)
    }

    /// Until when a session is proven by something sent at `sent` that was acknowledged.
    pub fn deadline(&self, sent: BootInstant) -> BootInstant {
        sent + self.proof_duration()
    }

    /// Whether two heartbeats fit before the margin, and the margin is large enough.
    pub fn is_sound(&self, policy: &ZooKeeperSettings) -> bool {
        self.proof_duration() >= self.period * 2
            && self.margin >= ZooKeeperSettings::least_margin(self.timeout, policy.tick)
    }
}

/// The beats of one session.
///
/// The leader counts the session's time from the last message that it has heard of, and a follower tells it of messages
/// only every half tick. So a beat proves life from the time of its sending, if the beats before it came in rhythm.
/// After a gap it does not: a follower may acknowledge the beat and die before it tells the leader. Such a beat extends
/// nothing. The first beat that extends the proof again is one sent after the leader has been told.
#[derive(Debug)]
pub struct HeartbeatTracker {
    rhythm: HeartbeatSchedule,
    previous: BootInstant,
    /// The first beat after the last gap. `None` before the first gap: the leader itself has made the session.
    began: Option<BootInstant>,
}

impl HeartbeatTracker {
    /// `connecting`: the instant before the session was asked for; the session cannot be older.
    pub fn new(rhythm: HeartbeatSchedule, connecting: BootInstant) -> Self {
        Self { rhythm, previous: connecting, began: None }
    }

    /// Call this when a beat is handed to the client library, before it is awaited. `rhythm`: the present one of the
    /// session.
    pub fn record_sent(&mut self, now: BootInstant, rhythm: HeartbeatSchedule) {
        self.rhythm = rhythm;
        if now.since(self.previous) > self.rhythm.gap {
            self.began = Some(now);
        }
        self.previous = now;
    }

    /// The beat sent last was committed: the new deadline, unless it came too soon after a gap.
    pub fn acknowledged_deadline(&self) -> Option<BootInstant> {
        self.is_leader_informed().then(|| self.rhythm.deadline(self.previous))
    }

    /// The time from the last beat to the next. If the last beat extended nothing, the next one comes as soon as it can
    /// extend the proof.
    pub fn period(&self) -> Duration {
        if self.is_leader_informed() { self.rhythm.period } else { self.rhythm.period.min(self.rhythm.relay) }
    }

    /// Whether the leader had been told of the beats since the last gap when the last beat was sent.
    fn is_leader_informed(&self) -> bool {
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

    /// The largest delay in rhythm is a period and the half tick after which a follower has told its leader.
    #[test]
    fn the_rhythm_is_that_of_the_negotiated_timeout() {
        assert_eq!(HeartbeatSchedule::new(&policy(None), Duration::from_secs(12)), RHYTHM);
        let short = HeartbeatSchedule::new(&policy(None), Duration::from_millis(3000));
        assert_eq!((short.period, short.gap), (Duration::from_millis(500), Duration::from_millis(1500)));
    }

    /// A session that proves less than two beats is lost whenever one of them is late; a margin below the least one lets a
    /// session end under a proof that holds.
    #[test]
    fn a_rhythm_is_sound_down_to_two_beats_and_the_least_margin() {
        let sound = |timeout, margin| {
            let policy = policy(Some(Duration::from_millis(margin)));
            HeartbeatSchedule::new(&policy, Duration::from_millis(timeout)).is_sound(&policy)
        };
        assert!(sound(12_000, 3000), "the least margin: a period and a tick");
        assert!(!sound(12_000, 2999));
        assert!(sound(12_000, 10_000), "two beats");
        assert!(!sound(12_000, 10_001) && !sound(12_000, 20_000));
    }

    #[test]
    fn a_beat_proves_from_its_send_time() {
        let mut beats = HeartbeatTracker::new(RHYTHM, second(100));
        beats.record_sent(second(101), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), Some(second(101 + 12 - 3)));
    }

    #[test]
    fn the_first_beat_after_a_gap_moves_nothing_and_the_next_one_does() {
        let mut beats = HeartbeatTracker::new(RHYTHM, second(100));
        beats.record_sent(second(103), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), None);
        beats.record_sent(second(104), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), Some(second(104 + 9)));
    }

    #[test]
    fn a_beat_at_the_end_of_the_gap_is_still_in_rhythm() {
        let mut beats = HeartbeatTracker::new(RHYTHM, second(100));
        beats.record_sent(second(102), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), Some(second(102 + 9)));
        beats.record_sent(second(104) + Duration::from_nanos(1), RHYTHM);
        assert_eq!(beats.acknowledged_deadline(), None);
    }

    /// A follower that takes a beat after a gap tells its leader within half a tick; until then a second one proves no
    /// more than the first.
    #[test]
    fn a_beat_that_moved_nothing_is_followed_as_soon_as_the_next_one_can_move_something() {
        let rhythm = HeartbeatSchedule { relay: Duration::from_millis(100), ..RHYTHM };
        let ms = |n| second(200) + Duration::from_millis(n);
        let mut beats = HeartbeatTracker::new(rhythm, second(100));
        beats.record_sent(ms(0), rhythm);
        assert_eq!((beats.acknowledged_deadline(), beats.period()), (None, rhythm.relay));
        beats.record_sent(ms(99), rhythm);
        assert_eq!((beats.acknowledged_deadline(), beats.period()), (None, rhythm.relay));
        beats.record_sent(ms(199), rhythm);
        assert_eq!(
            (beats.acknowledged_deadline(), beats.period()),
            (Some(rhythm.deadline(ms(199))), rhythm.period)
        );
        // A long tick, and a short session: a heartbeat comes sooner than the follower's word.
        let rhythm = HeartbeatSchedule { relay: Duration::from_secs(2), ..RHYTHM };
        let mut beats = HeartbeatTracker::new(rhythm, second(100));
        for (at, moves) in [(200, false), (201, false), (202, true), (203, true)] {
            assert_eq!(beats.period(), RHYTHM.period, "never slower than the rhythm");
            beats.record_sent(second(at), rhythm);
            assert_eq!(beats.acknowledged_deadline().is_some(), moves, "{at}");
        }
    }
}
