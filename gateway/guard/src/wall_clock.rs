//! The wall clock, as the guard reads it: for display, never for safety. A test may set it ahead.

#[cfg(test)]
use std::time::Duration;

/// Seconds of the wall clock: for display, never for safety.
pub(crate) fn wall_clock_seconds() -> u64 {
    #[cfg(test)]
    let ahead = AHEAD.get();
    #[cfg(not(test))]
    let ahead = std::time::Duration::ZERO;
    fencegate_process::clock::unix_seconds() + ahead.as_secs()
}

#[cfg(test)]
thread_local! {
    /// How far the wall clock of a test has been set ahead.
    pub(crate) static AHEAD: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}
