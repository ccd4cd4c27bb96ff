//! Compares the clock of another machine with ours.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use fencegate_process::display::FormattedDuration;

/// The least possible difference between the clock of another machine and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockDifference {
    Ahead(Duration),
    Behind(Duration),
}

impl ClockDifference {
    /// The least difference that is reported.
    pub(super) const LEAST: Duration = Duration::from_secs(2);
    pub(super) const REMEDY: &str =
        "let all machines take their time from one source; see *Clocks* in the runbook";

    /// The difference between `said`, the time of the other machine, and our clock, if it is certainly `LEAST`
    /// or more. `said` is from some moment between `before` and `after` by our clock, and is cut off at a
    /// multiple of `resolution`.
    pub(super) fn from_remote_reading(
        said: SystemTime,
        resolution: Duration,
        before: SystemTime,
        after: SystemTime,
    ) -> Option<Self> {
        let enough = |difference: Duration| (difference >= Self::LEAST).then_some(difference);
        let latest = said + resolution;
        let ahead = said.duration_since(after).ok().and_then(enough).map(Self::Ahead);
        ahead.or_else(|| before.duration_since(latest).ok().and_then(enough).map(Self::Behind))
    }
}

impl fmt::Display for ClockDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (far, side) = match self {
            Self::Ahead(far) => (far, "ahead of"),
            Self::Behind(far) => (far, "behind"),
        };
        write!(f, "{} {side} the one of this machine", FormattedDuration(*far))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query takes some time, and its answer may have whole seconds: only a difference that neither can
    /// explain is reported.
    #[test]
    fn clock_difference_needs_two_seconds() {
        let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000 + ms);
        let second = Duration::from_secs(1);
        let exact = Duration::ZERO;
        let whole = second;
        for (said, resolution, difference) in [
            (10_000, whole, None),
            (9_000, whole, None),
            (12_000, whole, None),
            (8_000, whole, None),
            (13_000, whole, Some(ClockDifference::Ahead(2 * second))),
            (7_000, whole, Some(ClockDifference::Behind(2 * second))),
            (610_000, whole, Some(ClockDifference::Ahead(599 * second))),
            (12_999, exact, None),
            (13_000, exact, Some(ClockDifference::Ahead(2 * second))),
            (8_001, exact, None),
            (8_000, exact, Some(ClockDifference::Behind(2 * second))),
        ] {
            let found = ClockDifference::from_remote_reading(at(said), resolution, at(10_000), at(11_000));
            assert_eq!(found, difference, "{said} {resolution:?}");
        }
        let ahead = ClockDifference::Ahead(3 * second).to_string();
        assert_eq!(ahead, "3s ahead of the one of this machine");
    }
}
