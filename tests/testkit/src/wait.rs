//! How long a test waits for what must happen, before it calls that it did not.

use std::{fmt, time::Duration};

/// Longer than anything that is merely slow on a busy machine; a test that needs a bound states its own.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// # Panics
/// When `event` did not happen in time, with what was awaited and what was seen instead.
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

/// Long enough for a gateway to do what it must not: where nothing should happen, there is no event to wait for.
pub const QUIET: Duration = Duration::from_millis(400);
