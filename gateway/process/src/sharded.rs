//! Metric families with several shards, so that workers do not contend for their counts. A scrape shows the sums.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use prometheus::{
    core::{Collector, Desc},
    proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType},
};

/// A metric family in several shards. If all workers shared one count, each request would move it from one processor's
/// cache to another's, and each request changes two dozen counts. So each thread uses one shard, and a scrape shows the
/// sum.
#[derive(Clone)]
pub struct ShardedMetric<V> {
    shards: Arc<[V]>,
}

/// The number of shards. There are few, because each shard has all series that its threads use, which costs memory with
/// thousands of routes.
const SHARDS: usize = 4;

impl<V: Collector> ShardedMetric<V> {
    /// `make` is called once per shard, and has to make the same family each time.
    ///
    /// # Errors
    /// Returns the error of `make`.
    pub fn new(make: impl Fn() -> prometheus::Result<V>) -> prometheus::Result<Self> {
        Ok(Self { shards: (0..SHARDS).map(|_| make()).collect::<prometheus::Result<_>>()? })
    }

    /// The shard of this thread.
    pub fn local(&self) -> &V {
        &self.shards[thread_index() % SHARDS]
    }
}

/// The shard number of a thread; threads take the numbers in turn.
fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! { static PLACE: Cell<Option<usize>> = const { Cell::new(None) } }
    PLACE.with(|known| {
        let place = known.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed));
        known.set(Some(place));
        place
    })
}

impl<V: Collector> Collector for ShardedMetric<V> {
    fn desc(&self) -> Vec<&Desc> {
        self.shards[0].desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut sums = self.shards[0].collect();
        for (sum, at) in sums.iter_mut().zip(0..) {
            let kind = sum.get_field_type();
            let mut metrics: Vec<Metric> = sum.get_metric().to_vec();
            let mut known: HashMap<LabelPairs, usize> = metrics.iter().map(labels).zip(0..).collect();
            for shard in &self.shards[1..] {
                for metric in shard.collect()[at].get_metric() {
                    let same = *known.entry(labels(metric)).or_insert(metrics.len());
                    match metrics.get_mut(same) {
                        Some(sum) => add(sum, metric, kind),
                        None => metrics.push(metric.clone()),
                    }
                }
            }
            sum.set_metric(metrics);
        }
        sums
    }
}

/// Names and values of labels, sorted by name as the library does it.
type LabelPairs = Vec<(String, String)>;

fn labels(metric: &Metric) -> LabelPairs {
    metric.get_label().iter().map(|pair| (pair.name().to_owned(), pair.value().to_owned())).collect()
}

fn add(sum: &mut Metric, more: &Metric, kind: MetricType) {
    match kind {
        MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(sum.get_counter().get_value() + more.get_counter().get_value());
            sum.set_counter(counter);
        }
        MetricType::GAUGE => {
            let mut gauge = Gauge::default();
            gauge.set_value(sum.get_gauge().get_value() + more.get_gauge().get_value());
            sum.set_gauge(gauge);
        }
        MetricType::HISTOGRAM => sum.set_histogram(add_histograms(sum.get_histogram(), more.get_histogram())),
        MetricType::SUMMARY | MetricType::UNTYPED => unreachable!("no family of ours is one"),
    }
}

/// The sum of two histograms with the same bounds.
fn add_histograms(one: &Histogram, other: &Histogram) -> Histogram {
    let mut sum = Histogram::default();
    sum.set_sample_count(one.get_sample_count() + other.get_sample_count());
    sum.set_sample_sum(one.get_sample_sum() + other.get_sample_sum());
    let buckets = one.get_bucket().iter().zip(other.get_bucket()).map(|(one, other)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(one.upper_bound());
        bucket.set_cumulative_count(one.cumulative_count() + other.cumulative_count());
        bucket
    });
    sum.set_bucket(buckets.collect());
    sum
}

#[cfg(test)]
mod tests {
    use std::thread;

    use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

    use super::*;

    fn encode(collector: impl Collector + 'static) -> String {
        let registry = Registry::new();
        registry.register(Box::new(collector)).expect("once");
        TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
    }

    /// Runs `work` in more threads than there are shards.
    fn run_on_threads(work: impl Fn(usize) + Sync) {
        thread::scope(|scope| {
            for number in 0..3 * SHARDS {
                let work = &work;
                scope.spawn(move || work(number));
            }
        });
    }

    /// The counts of all threads are exported as one sum per series, for counters and for gauges.
    #[test]
    fn series_are_summed_across_threads() {
        let counters = || IntCounterVec::new(Opts::new("asked", "Help."), &["route"]);
        let counters = ShardedMetric::new(counters).expect("well-formed");
        run_on_threads(|number| {
            counters.local().with_label_values(&["all"]).inc_by(2);
            counters.local().with_label_values(&[&number.to_string()]).inc();
        });
        let text = encode(counters.clone());
        assert!(text.contains(&format!("asked{{route=\"all\"}} {}\n", 2 * 3 * SHARDS)), "{text}");
        assert!(
            (0..3 * SHARDS).all(|number| text.contains(&format!("asked{{route=\"{number}\"}} 1\n"))),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2 + 1 + 3 * SHARDS, "{text}");

        let gauges = ShardedMetric::new(|| IntGaugeVec::new(Opts::new("open", "Help."), &["route"]));
        let gauges = gauges.expect("well-formed");
        run_on_threads(|_| gauges.local().with_label_values(&["all"]).inc());
        // A gauge may go up in one thread and down in another.
        for _ in 0..3 * SHARDS - 1 {
            gauges.local().with_label_values(&["all"]).dec();
        }
        assert!(encode(gauges).contains("open{route=\"all\"} 1\n"));
    }

    #[test]
    fn histograms_sum_per_bucket() {
        let opts = || HistogramOpts::new("seconds", "Help.").buckets(vec![1.0, 10.0]);
        let sharded = ShardedMetric::new(|| HistogramVec::new(opts(), &["route"])).expect("well-formed");
        let whole = HistogramVec::new(opts(), &["route"]).expect("well-formed");
        run_on_threads(|number| {
            for value in [0.5, 5.0, 50.0].into_iter().take(number % 4) {
                sharded.local().with_label_values(&["a"]).observe(value);
                whole.with_label_values(&["a"]).observe(value);
            }
        });
        assert_eq!(encode(sharded), encode(whole));
    }
}
