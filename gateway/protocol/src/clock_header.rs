//! The field `Fencing-Clock`: senders of requests use it to measure the offset of a filter's clock.

use std::time::Duration;

use fencegate_process::clock::{Clock, SharedClock};
use hyper::header::HeaderValue;

/// A clock that is sent with every response.
pub struct ClockHeader {
    pub clock: SharedClock,
    /// The largest error of the sender's wall clock, which the response reports.
    pub error: Duration,
}

/// The offset of the responder's clock, as its response shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockOffset {
    /// The time by which the remote clock is ahead of the local one, in seconds; negative if it is behind. It is
    /// uncertain by the time that the response took on its way.
    pub seconds: f64,
    /// The largest offset with which no request is admitted too late, in seconds.
    pub error: f64,
}

impl ClockHeader {
    /// The value of the field: milliseconds since 1970, and the error in milliseconds.
    pub fn header_value(&self) -> HeaderValue {
        let text = format!("{};error={}", self.clock.unix_ms(), self.error.as_millis());
        HeaderValue::try_from(text).expect("digits and a word are visible ASCII")
    }
}

impl ClockOffset {
    /// Parses the field of a response that has just arrived. `None` for a value that no filter writes.
    ///
    /// The filter reads its clock when it responds. So the local clock is read when the response arrives, and not in
    /// the middle of the exchange, which may have waited long for the service.
    pub fn parse(value: &HeaderValue, clock: &dyn Clock) -> Option<Self> {
        let (shown, error) = value.to_str().ok()?.split_once(";error=")?;
        let number = |text: &str| {
            let short = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            short.then(|| text.parse::<u64>().ok()).flatten()
        };
        let shown = number(shown)?;
        let error = number(error)?;
        let ours = clock.unix_ms();
        let apart = Duration::from_millis(shown.abs_diff(ours)).as_secs_f64();
        let seconds = if shown < ours { -apart } else { apart };
        Some(Self { seconds, error: Duration::from_millis(error).as_secs_f64() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fencegate_process::clock::ManualClock;

    use super::*;

    /// A clock header is read as the offset to the local clock with its error; malformed values give none.
    #[test]
    fn clock_header_parses_as_offset() {
        let theirs = Arc::<ManualClock>::default();
        let ours = ManualClock::default();
        theirs.advance(Duration::from_millis(5_250));
        ours.advance(Duration::from_secs(6));
        let value = ClockHeader { clock: theirs, error: Duration::from_millis(500) }.header_value();
        assert_eq!(value, "5250;error=500");
        assert_eq!(ClockOffset::parse(&value, &ours), Some(ClockOffset { seconds: -0.75, error: 0.5 }));
        for other in ["", "5", "5;error=", "-5;error=1", "5;error=1;more", "1234567890123456;error=1"] {
            assert_eq!(ClockOffset::parse(&HeaderValue::from_static(other), &ours), None, "{other}");
        }
    }
}
