//! Asks again for a key whose holders were found to ask for another number of permits.
//!
//! After the number was changed, the last holders with the old number may be about to leave. A request with the new
//! number gives up its place in line at once, because otherwise requests with the old number would wait behind it. So
//! it waits outside of the line and asks again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lock_request::LockRequest;

pub(super) struct PermitCountRetry {
    /// The pause before the next try.
    pause: Duration,
}

/// The first of three pauses; each is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_millis(200);

impl PermitCountRetry {
    pub(super) fn new(wish: LockRequest<'_>) -> Self {
        // A request that does not wait for a holder does not wait for this either.
        Self { pause: if wish.wait.is_zero() { LAST * 2 } else { FIRST } }
    }

    /// Waits for the pause. True if the key may be asked for again.
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
