//! Formats points in time for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `seconds` since 1970.
pub(super) fn format_unix_seconds_and_age(seconds: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(seconds);
    let ago = SystemTime::now().duration_since(then).unwrap_or_default();
    let ago = humantime::format_duration(Duration::from_secs(ago.as_secs()));
    format!("{} ({ago} ago)", humantime::format_rfc3339_seconds(then))
}
