//! Time limits of tests: for events that must happen, and for events that must not.

use std::{fmt, time::Duration};

/// Longer than anything takes that is merely slow on a busy machine. A test that needs a bound states its own.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `event`, at most for [`PATIENCE`].
///
/// # Panics
/// If `event` does not happen in time, with what was awaited and what was seen instead.
pub async fn wait_until<R, S: fmt::Debug>(
    what: &str,
    event: impl Future<Output = R>,
    seen: impl Fn() -> S,
) -> R {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(result) => result,
        Err(_) => panic!("waited {PATIENCE:?} for {what}; seen instead: {:#?}", seen()),
    }
}

/// How long a test waits to see that nothing happens, because there is no event for that: long enough for a gateway
/// to make the mistake.
pub const QUIET: Duration = Duration::from_millis(400);
