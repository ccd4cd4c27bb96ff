//! The distribution of a histogram's values over its buckets, summed over all series.

use prometheus::core::Collector;

/// The cumulative number of values up to each upper bound; the last number counts all values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramBucketCounts {
    bounds: Vec<f64>,
    counts: Vec<u64>,
}

impl HistogramBucketCounts {
    /// `counts` has one entry more than `bounds`.
    pub fn new(bounds: &[f64], counts: &[u64]) -> Self {
        Self { bounds: bounds.to_vec(), counts: counts.to_vec() }
    }

    /// Reads a histogram, summed over its series. `bounds`: the bounds with which the histogram was made.
    pub fn from_collector(histogram: &impl Collector, bounds: &[f64]) -> Self {
        let mut counts = vec![0; bounds.len() + 1];
        for family in histogram.collect() {
            for metric in family.get_metric() {
                let one = metric.get_histogram();
                for (sum, bucket) in counts.iter_mut().zip(one.get_bucket()) {
                    *sum += bucket.cumulative_count();
                }
                counts[bounds.len()] += one.get_sample_count();
            }
        }
        Self { bounds: bounds.to_vec(), counts }
    }

    /// The values that were added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = self.counts.iter().zip(&before.counts).map(|(now, then)| now.saturating_sub(*then));
        Self { bounds: self.bounds.clone(), counts: counts.collect() }
    }

    pub fn count(&self) -> u64 {
        self.counts.last().copied().unwrap_or(0)
    }

    /// The quantile `part`, under the assumption that values are spread evenly within a bucket. Above the last bound
    /// the result is that bound. `None` if there are no values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of a few minutes")]
        let rank = part * all as f64;
        let float = |count: u64| count as f64;
        let mut lower = 0.0;
        let mut below = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            if float(*count) >= rank && *count > below {
                return Some(lower + (bound - lower) * (rank - float(below)) / float(count - below));
            }
            (lower, below) = (*bound, *count);
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let spread = HistogramBucketCounts::new(&[1.0, 2.0, 4.0], &[0, 10, 10, 20]);
        assert_eq!(spread.quantile(0.25), Some(1.5));
        assert_eq!(spread.quantile(0.99), Some(4.0), "beyond the last bound");
        assert_eq!(HistogramBucketCounts::new(&[1.0], &[0, 0]).quantile(0.5), None);
    }
}
