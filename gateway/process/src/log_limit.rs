//! Limits how often a line is logged that anybody on the network can cause. Without a limit a port scanner, or the
//! health check of a balancer, would fill the log.

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// Admits one line in each period, and counts the lines that are left out. Each worker has one for each kind of
/// line.
#[derive(Debug)]
pub struct LogLimiter {
    period: Duration,
    next: Cell<Option<Instant>>,
    left_out: Cell<u64>,
}

impl LogLimiter {
    pub fn new(period: Duration) -> Self {
        Self { period, next: Cell::new(None), left_out: Cell::new(0) }
    }

    /// Whether a line may be logged now. If so, returns the number of lines that were left out since the last one.
    /// The first line may always be logged.
    pub fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        if self.next.get().is_some_and(|next| now < next) {
            self.left_out.set(self.left_out.get() + 1);
            return None;
        }
        self.next.set(Some(now + self.period));
        Some(self.left_out.take())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn line_is_admitted_once_per_period() {
        let limiter = LogLimiter::new(Duration::from_secs(60));
        assert_eq!(limiter.admit(), Some(0));
        for _ in 0..3 {
            assert_eq!(limiter.admit(), None);
        }
        advance(Duration::from_secs(59)).await;
        assert_eq!(limiter.admit(), None);
        advance(Duration::from_secs(1)).await;
        assert_eq!((limiter.admit(), limiter.admit()), (Some(4), None));
        // During the quiet time no further line was left out, so only the one from before is counted.
        advance(Duration::from_secs(600)).await;
        assert_eq!(limiter.admit(), Some(1));
    }
}
