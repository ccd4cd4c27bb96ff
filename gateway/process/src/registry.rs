//! The metric families of one process: their names and meanings, the text that Prometheus scrapes, and
//! their values at one moment.

use std::sync::{Mutex, PoisonError};

use prometheus::{
    Encoder, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector,
    proto::{Metric, MetricFamily, MetricType},
};

use crate::process_metrics::ProcessMetrics;

/// The registry of a process. Every family in it is exposed, and is listed in `deploy/METRICS.md`.
pub struct MetricRegistry {
    registry: Registry,
    /// Families with the usual names of the Prometheus libraries, without the prefix `fencegate`.
    unprefixed: Registry,
    described: Mutex<Vec<MetricDesc>>,
}

/// The description of a family.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricDesc {
    pub name: String,
    pub kind: &'static str,
    pub labels: Vec<String>,
    pub help: String,
}

/// Bucket bounds in seconds, for waits and answers.
pub const SHORT: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Bucket bounds in seconds, for the time that locks are held, which is as long as the work under them.
pub const LONG: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// The gauge of operations with an unknown outcome, by their store. Every gateway counts all operations
/// in ZooKeeper.
pub fn unknown_operations_gauge() -> prometheus::Result<IntGaugeVec> {
    let help = "Operations that may have happened, until somebody says what came of them. Each gateway counts all of its \
                installation: take the largest. It says nothing before it has looked through all of them.";
    IntGaugeVec::new(Opts::new("operations_unknown", help), &["store"])
}

const PREFIX: &str = "fencegate";

impl Default for MetricRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl MetricRegistry {
    pub fn new() -> Self {
        let registry = Registry::new_custom(Some(PREFIX.into()), None).expect("the prefix is a name");
        Self { registry, unprefixed: Registry::new(), described: Mutex::default() }
    }

    /// Adds the families about the process itself.
    pub fn with_process(self) -> Self {
        let process = ProcessMetrics::new();
        self.describe("", &process);
        self.unprefixed.register(Box::new(process)).expect("every name is registered once");
        self
    }

    pub fn register<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("names and labels are well-formed");
        self.describe("fencegate_", &collector);
        self.registry.register(Box::new(collector.clone())).expect("every name is registered once");
        collector
    }

    fn describe(&self, prefix: &str, collector: &impl Collector) {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        for (desc, family) in collector.desc().into_iter().zip(collector.collect()) {
            let fixed = desc.const_label_pairs.iter().map(|pair| pair.name().to_owned());
            described.push(MetricDesc {
                name: format!("{prefix}{}", desc.fq_name),
                kind: kind_name(family.get_field_type()),
                labels: fixed.chain(desc.variable_labels.iter().cloned()).collect(),
                help: desc.help.clone(),
            });
        }
    }

    /// The descriptions of all families, sorted by name.
    pub fn descriptions(&self) -> Vec<MetricDesc> {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner).clone();
        described.sort();
        described
    }

    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// The text format that Prometheus scrapes.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for registry in [&self.registry, &self.unprefixed] {
            TextEncoder::new()
                .encode(&registry.gather(), &mut text)
                .expect("writing to memory does not fail");
        }
        text
    }
}

fn kind_name(kind: MetricType) -> &'static str {
    match kind {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

/// The values of all families at one moment, for code that needs single numbers.
#[derive(Debug)]
pub struct MetricSnapshot(Vec<MetricFamily>);

impl MetricSnapshot {
    pub fn new(families: Vec<MetricFamily>) -> Self {
        Self(families)
    }

    fn series(&self, name: &str) -> impl Iterator<Item = &Metric> {
        let family = self.0.iter().find(|family| family.name() == name);
        family.into_iter().flat_map(|family| family.get_metric())
    }

    /// The sum over all series of a family, or over those with this label value; 0 for an unknown family.
    pub fn sum(&self, name: &str, label: Option<(&str, &str)>) -> f64 {
        let wanted = self.series(name).filter(|one| {
            let mut labels = one.get_label().iter();
            label.is_none_or(|label| labels.any(|found| (found.name(), found.value()) == label))
        });
        wanted.map(|one| one.get_counter().get_value() + one.get_gauge().get_value()).sum()
    }

    /// The series of a family of counters, by the values of a label.
    pub fn by_label(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let named = |one: &Metric| {
            let label = one.get_label().iter().find(|found| found.name() == label)?;
            Some((label.value().to_owned(), one.get_counter().get_value()))
        };
        self.series(name).filter_map(named).collect()
    }
}
