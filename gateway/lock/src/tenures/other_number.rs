//! Asks once more for a key that was found to be held by another number of holders.
//!
//! Where the number has just been changed, the last of those who asked for it as it was may be about to leave. Whoever is unlike
//! them gives up its place in line at once, or others who are like them would wait behind it; so it waits outside.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::wish::Wish;

pub(super) struct Unlike {
    /// Until then it is asked for no more.
    pause: Duration,
}

/// The first of three; each is twice as long as the one before it.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_millis(200);

impl Unlike {
    pub(super) fn of(wish: Wish<'_>) -> Self {
        // Who does not wait does not wait for this either.
        Self { pause: if wish.wait.is_zero() { LAST * 2 } else { FIRST } }
    }

    /// Returns when it is to be asked for again; whether it is.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub(super) async fn again(&mut self, deadline: Instant) -> bool {
        if self.pause > LAST || Instant::now() + self.pause >= deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}
