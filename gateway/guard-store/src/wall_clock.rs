//! The wall clock, as the guard reads it: for display, never for safety. A test may set it ahead.

#[cfg(any(test, feature = "test-clock"))]
use std::time::Duration;

/// Seconds of the wall clock: for display, never for safety.
pub fn wall_clock_seconds() -> u64 {
    #[cfg(any(test, feature = "test-clock"))]
    let ahead = AHEAD.get();
    #[cfg(not(any(test, feature = "test-clock")))]
    let ahead = std::time::Duration::ZERO;
    fencegate_process::clock::unix_seconds() + ahead.as_secs()
}

#[cfg(any(test, feature = "test-clock"))]
thread_local! {
    /// How far the wall clock of a test has been set ahead.
    pub static AHEAD: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}
