//! The metrics of the keys with which the issuers of bearer tokens sign. The names of issuers come
//! from the policy.

use fencegate_process::registry::MetricRegistry;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// The families of the key sets that are fetched for bearer tokens; all clones share the same
/// families.
#[derive(Debug, Clone)]
pub struct IssuerKeyMetrics {
    fetches: IntCounterVec,
    unusable: IntGaugeVec,
}

impl IssuerKeyMetrics {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        let fetches = Opts::new(
            "issuer_key_fetches_total",
            "Fetches of the key set of an issuer of bearer tokens, by whether there was a usable one.",
        );
        let unusable = Opts::new(
            "issuer_keys_unusable",
            "1 while every token of the issuer is refused, because its keys were not fetched yet, or not within `max_key_age`.",
        );
        Self {
            fetches: families.register(IntCounterVec::new(fetches, &["issuer", "result"])),
            unusable: families.register(IntGaugeVec::new(unusable, &["issuer"])),
        }
    }

    /// Metrics that are not exposed, for commands that are no gateway.
    pub fn unexposed() -> Self {
        Self::register(&MetricRegistry::new())
    }

    pub fn record_fetch(&self, issuer: &str, is_good: bool) {
        let result = if is_good { "good" } else { "bad" };
        self.fetches.with_label_values(&[issuer, result]).inc();
    }

    pub fn set_unusable(&self, issuer: &str, is_unusable: bool) {
        self.unusable.with_label_values(&[issuer]).set(is_unusable.into());
    }

    /// Removes the series of an issuer that the plan no longer has, or whose keys are now in a file.
    pub fn remove_unusable(&self, issuer: &str) {
        // It is no error if the issuer has no series.
        drop(self.unusable.remove_label_values(&[issuer]));
    }
}
