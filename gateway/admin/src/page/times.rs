//! Formats times and durations for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A duration as people read it: with two significant digits.
pub(super) fn format_millis(millis: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let seconds = millis as f64 / 1000.0;
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..10_000 => format!("{seconds:.1} s"),
        10_000..120_000 => format!("{seconds:.0} s"),
        120_000..7_200_000 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

pub(super) fn format_now() -> String {
    format_time(SystemTime::now())
}

pub(super) fn format_time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

pub(super) fn format_unix_seconds(seconds: u64) -> String {
    format_time(UNIX_EPOCH + Duration::from_secs(seconds))
}
