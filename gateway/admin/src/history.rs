//! Wait and hold times of requests over the last minutes, for the plots of the page. A Prometheus server has more, if
//! there is one.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fencegate_metrics::AllMetricFamilies;
use fencegate_process::histogram::HistogramBucketCounts;

/// The samples of the last minutes. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LatencyHistory(Arc<Mutex<VecDeque<HistogramSample>>>);

/// The time between two samples.
pub const EVERY: Duration = Duration::from_secs(5);

/// The most samples: those of fifteen minutes.
pub const MOST: usize = 180;

/// The counters at one moment.
#[derive(Debug, Clone)]
struct HistogramSample {
    wait: HistogramBucketCounts,
    hold: HistogramBucketCounts,
}

/// The percentiles of one interval. A part is `None` if nothing happened in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WaitHoldPercentiles {
    pub wait: Option<Percentiles>,
    pub hold: Option<Percentiles>,
}

/// The median and the 99th percentile in seconds, and the number of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    pub half: f64,
    pub most: f64,
    pub count: u64,
}

impl LatencyHistory {
    /// Samples the counters at each interval, for ever.
    pub async fn sample_forever(self, metrics: Arc<AllMetricFamilies>) {
        loop {
            self.push(HistogramSample {
                wait: metrics.wait_distribution(),
                hold: metrics.hold_distribution(),
            });
            tokio::time::sleep(EVERY).await;
        }
    }

    fn push(&self, sample: HistogramSample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() > MOST {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The percentiles of each interval, the newest last.
    pub(crate) fn interval_percentiles(&self) -> Vec<WaitHoldPercentiles> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = samples.iter().zip(samples.iter().skip(1));
        pairs
            .map(|(before, after)| WaitHoldPercentiles {
                wait: percentiles(&after.wait.since(&before.wait)),
                hold: percentiles(&after.hold.since(&before.hold)),
            })
            .collect()
    }
}

fn percentiles(spread: &HistogramBucketCounts) -> Option<Percentiles> {
    let half = spread.quantile(0.5)?;
    let most = spread.quantile(0.99)?;
    Some(Percentiles { half, most, count: spread.count() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(counts: &[u64]) -> HistogramSample {
        let spread = HistogramBucketCounts::new(&[0.1, 1.0], counts);
        HistogramSample { wait: spread.clone(), hold: spread }
    }

    #[test]
    fn point_is_difference_of_samples() {
        let trends = LatencyHistory::default();
        for counts in [[0, 0, 0], [10, 10, 10], [10, 20, 20]] {
            trends.push(sample(&counts));
        }
        let points = trends.interval_percentiles();
        assert_eq!(points.len(), 2);
        let halves: Vec<_> =
            points.iter().map(|point| point.wait.map(|wait| (wait.count, wait.half))).collect();
        assert_eq!(halves, [Some((10, 0.05)), Some((10, 0.55))]);
    }

    #[test]
    fn oldest_samples_are_dropped() {
        let trends = LatencyHistory::default();
        for _ in 0..3 * MOST {
            trends.push(sample(&[0, 0, 0]));
        }
        assert_eq!(trends.interval_percentiles().len(), MOST);
        assert_eq!(trends.interval_percentiles()[0], WaitHoldPercentiles { wait: None, hold: None });
    }
}
