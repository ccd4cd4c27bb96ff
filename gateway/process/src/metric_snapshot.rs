//! The values of all families at one moment, for code that needs single numbers.

use prometheus::proto::{Metric, MetricFamily};

/// All families, as they were gathered at once.
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
