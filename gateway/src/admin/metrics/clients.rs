//! What is counted about the connections of clients, before there is a request whose route could be named.

use prometheus::{IntCounterVec, Opts, Registry};

use super::registered;
use crate::listen::limit::Limit;

/// The families of the connections of clients; clones count into the same ones.
#[derive(Debug, Clone)]
pub struct ClientMetrics {
    timeouts: IntCounterVec,
}

impl ClientMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let timeouts = Opts::new("client_timeouts_total", "Clients that were not waited for any longer.");
        let metrics = Self { timeouts: registered(registry, IntCounterVec::new(timeouts, &["limit"])) };
        for limit in Limit::ALL {
            // A series that is there before it counts is one that an alert can compare with.
            metrics.timeouts.with_label_values(&[limit.word()]);
        }
        metrics
    }

    pub fn timed_out(&self, limit: Limit) {
        self.timeouts.with_label_values(&[limit.word()]).inc();
    }
}
