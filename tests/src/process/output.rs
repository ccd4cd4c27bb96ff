//! The output of a process: its log lines and its metrics.

use std::collections::BTreeMap;

use serde_json::Value;

/// One line of the log.
#[derive(Debug, Clone)]
pub struct LogLine(Value);

/// The samples of `/metrics`: the value of each sample by its name with labels.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSamples(pub BTreeMap<String, f64>);

impl LogLine {
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    pub fn message(&self) -> &str {
        self.field("message")
    }

    /// The whole line as text.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// The value of a text field, or an empty text if the field does not exist.
    pub fn field(&self, name: &str) -> &str {
        self.0["fields"][name].as_str().unwrap_or_default()
    }
}

impl MetricSamples {
    pub(super) fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let split = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        Self(samples.map(split).collect())
    }

    /// The sum of the samples of this name that have all these labels.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.named(name)
            .filter(|(sample, _)| labels.iter().all(|label| sample.contains(label)))
            .map(|(_, v)| v)
            .sum()
    }

    /// The largest sample of this name, or 0 if there is no sample.
    pub fn largest(&self, name: &str) -> f64 {
        self.named(name).map(|(_, value)| value).fold(0.0, f64::max)
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let samples = self.0.iter().map(|(sample, value)| (sample.as_str(), *value));
        samples.filter(move |(sample, _)| sample.split('{').next() == Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_name_includes_labels() {
        let text = "# HELP a b\n# TYPE a counter\na{route=\"x y\",code=\"200\"} 3\nb 0.5\n";
        let expected = [("a{route=\"x y\",code=\"200\"}".to_owned(), 3.0), ("b".to_owned(), 0.5)];
        assert_eq!(MetricSamples::parse(text), MetricSamples(expected.into()));
    }
}
