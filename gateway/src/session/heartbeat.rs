//! Turns acknowledged writes into a deadline: until when the server cannot have expired our session.

use std::time::Duration;

use fencegate_policies::plan::ZooKeeper;

use super::clock::Boot;

/// The arithmetic of one session, from its negotiated timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Negotiated session timeout, T.
    pub timeout: Duration,
    /// Time between two committed writes.
    pub period: Duration,
    /// Taken off the earliest possible expiry.
    pub margin: Duration,
    /// Longer than this between two sends is a gap: what the server knew of us in between is not known.
    pub gap: Duration,
}

impl Rhythm {
    pub fn of(policy: &ZooKeeper, negotiated: Duration) -> Self {
        let period = ZooKeeper::heartbeat(negotiated);
        Self { timeout: negotiated, period, margin: policy.margin(negotiated), gap: period + policy.tick / 2 }
    }

    /// Until when a session is proven by something sent at `sent` that was acknowledged.
    pub fn deadline(&self, sent: Boot) -> Boot {
        sent + self.timeout - self.margin
    }
}

/// The beats of one session.
///
/// A server counts the session's time from a message it *got*, not from one we sent, and a follower passes that
/// knowledge on to the leader only every half tick. So a beat proves life from its send time on, and only while the
/// beats before it came in rhythm: after a pause the first acknowledged beat may have been taken by a follower that
/// dies before it tells the leader. It moves nothing; the next one does.
#[derive(Debug)]
pub struct Beats {
    rhythm: Rhythm,
    previous: Boot,
    /// The last send came after a gap.
    after_gap: bool,
}

impl Beats {
    /// `connecting`: the instant before the session was asked for; the session cannot be older.
    pub fn new(rhythm: Rhythm, connecting: Boot) -> Self {
        Self { rhythm, previous: connecting, after_gap: false }
    }

    /// Call when a beat is handed to the client, before it is awaited.
    pub fn sending(&mut self, now: Boot) {
        self.after_gap = now.since(self.previous) > self.rhythm.gap;
        self.previous = now;
    }

    /// The beat sent last was committed: the new deadline, unless it came after a gap.
    pub fn acknowledged(&self) -> Option<Boot> {
        (!self.after_gap).then(|| self.rhythm.deadline(self.previous))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RHYTHM: Rhythm = Rhythm {
        timeout: Duration::from_secs(12),
        period: Duration::from_secs(1),
        margin: Duration::from_secs(3),
        gap: Duration::from_secs(2),
    };

    fn second(n: u64) -> Boot {
        Boot::from_nanos(n * 1_000_000_000)
    }

    #[test]
    fn a_beat_proves_from_its_send_time() {
        let mut beats = Beats::new(RHYTHM, second(100));
        beats.sending(second(101));
        assert_eq!(beats.acknowledged(), Some(second(101 + 12 - 3)));
    }

    #[test]
    fn the_first_beat_after_a_gap_moves_nothing_and_the_next_one_does() {
        let mut beats = Beats::new(RHYTHM, second(100));
        beats.sending(second(103));
        assert_eq!(beats.acknowledged(), None);
        beats.sending(second(104));
        assert_eq!(beats.acknowledged(), Some(second(104 + 9)));
    }
}
