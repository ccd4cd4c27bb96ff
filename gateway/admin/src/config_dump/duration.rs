//! Durations as a policy writes them.

use std::time::Duration;

pub(super) fn format_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}
