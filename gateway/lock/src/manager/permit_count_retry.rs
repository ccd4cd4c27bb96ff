//! Retries a key whose holders turned out to request another permit count.
//!
//! After the count was changed, the last holders with the old count may be about to leave. A request with the new count
//! leaves the queue at once, because otherwise requests with the old count would wait behind it. So it waits outside of
//! the queue and retries.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lock_request::LockRequest;

pub(super) struct PermitCountRetry {
    /// The pause before the next attempt.
    pause: Duration,
}

/// The first of three pauses; each is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_millis(200);

impl PermitCountRetry {
    pub(super) fn new(request: LockRequest<'_>) -> Self {
        // A request that does not wait for a holder does not wait for this either.
        Self { pause: if request.wait.is_zero() { LAST * 2 } else { FIRST } }
    }

    /// Waits for the pause. True if the key may be requested again.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub(super) async fn wait_retry(&mut self, deadline: Instant) -> bool {
        if self.pause > LAST || Instant::now() + self.pause >= deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}
