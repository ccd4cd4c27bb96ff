//! Metrics of the plan in force, and of reloads.

use fencegate_policies::plan::GatewayPlan;
use fencegate_process::registry::MetricRegistry;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::labels::ReloadResult;

/// The families of the plan.
pub(super) struct PlanMetricFamilies {
    config: IntGaugeVec,
    reloads: IntCounterVec,
    reload_successful: IntGauge,
    refused_routes: IntGauge,
}

impl PlanMetricFamilies {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        Self {
            config: families.register(IntGaugeVec::new(
                Opts::new(
                    "config_info",
                    "The plan in force; equal among gateways whose locks mean the same.",
                ),
                &["fingerprint"],
            )),
            reloads: families.register(IntCounterVec::new(
                Opts::new("config_reloads_total", "Readings of the file, by result."),
                &["result"],
            )),
            reload_successful: families.register(
                IntGauge::with_opts(Opts::new(
                    "config_last_reload_successful",
                    "1 while the file as last read is in force.",
                ))
                .inspect(|gauge| gauge.set(1)),
            ),
            refused_routes: families.register(IntGauge::new(
                "config_refused_routes",
                "Routes that gateways which were there before lock otherwise, so that they are refused here.",
            )),
        }
    }

    pub(super) fn apply_plan(&self, gateway: &GatewayPlan) {
        self.config.reset();
        self.config.with_label_values(&[&format!("{:016x}", gateway.fingerprint)]).set(1);
    }

    pub(super) fn set_refused_routes(&self, routes: usize) {
        self.refused_routes.set(routes.try_into().unwrap_or(i64::MAX));
    }

    pub(super) fn record_reload(&self, result: ReloadResult) {
        self.reloads.with_label_values(&[result.as_str()]).inc();
        self.reload_successful.set(i64::from(result != ReloadResult::Refused));
    }
}
