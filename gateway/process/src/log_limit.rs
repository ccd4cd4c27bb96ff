//! Limits how often one line is logged that anybody on the network can cause: without a limit a port scanner, or the
//! health check of a balancer, fills the log.

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// Admits one line in each period, and counts those that are left out. One for each worker and kind of line.
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

    /// How many lines were left out since the last one, if a line may be logged now. The first one always may.
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
        // Nothing was left out in a quiet time.
        advance(Duration::from_secs(600)).await;
        assert_eq!(limiter.admit(), Some(1));
    }
}
