//! The keys that requests wait for most, in bounded memory: a top-k sketch, because with a label for each key there
//! would be one series per account.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fencegate_policies::key::ResourceKey;

/// The keys of the last minutes, over all workers. Only requests that did not find their lock here are counted.
#[derive(Debug, Clone)]
pub struct HotKeys(Arc<Mutex<HotKeyWindows>>);

#[derive(Debug)]
struct HotKeyWindows {
    current: HotKeySketch,
    last: HotKeySketch,
    since: Instant,
}

/// The width of a window. A result covers the time of one to two windows.
const WINDOW: Duration = Duration::from_secs(150);

/// The most keys that are counted at a time. A key that is not among them has less than this fraction of all waiting.
const MAX_KEYS: usize = 512;

/// Space-saving (Metwally, Agrawal and El Abbadi, 2005): when all counters are taken, a new key replaces the smallest
/// and inherits its count as an error.
#[derive(Debug, Default)]
struct HotKeySketch {
    counts: HashMap<ResourceKey, HotKeyCount>,
}

/// The count of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotKeyCount {
    /// The microseconds that requests waited for the key, in total; the true value is lower by at most `over`.
    pub waited: u64,
    pub over: u64,
    pub requests: u64,
    /// The number of requests that waited and did not get the lock.
    pub refused: u64,
}

impl Default for HotKeys {
    fn default() -> Self {
        let windows = HotKeyWindows {
            current: HotKeySketch::default(),
            last: HotKeySketch::default(),
            since: Instant::now(),
        };
        Self(Arc::new(Mutex::new(windows)))
    }
}

impl HotKeys {
    /// Records that a request got its keys, or gave up, after this wait.
    pub fn record_wait(&self, keys: &[ResourceKey], waited: Duration, refused: bool) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.rotate();
        for key in keys {
            windows.current.add(key, waited, refused);
        }
    }

    /// The keys with the longest waits in total, and the time that these counts cover.
    pub fn top(&self, most: usize) -> (Vec<(ResourceKey, HotKeyCount)>, Duration) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.rotate();
        let mut all = windows.last.counts.clone();
        for (key, count) in &windows.current.counts {
            let sum = all.entry(key.clone()).or_default();
            sum.waited = sum.waited.saturating_add(count.waited);
            sum.over = sum.over.saturating_add(count.over);
            sum.requests += count.requests;
            sum.refused += count.refused;
        }
        let since =
            windows.since.elapsed() + if windows.last.counts.is_empty() { Duration::ZERO } else { WINDOW };
        drop(windows);
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|(one, a), (other, b)| b.waited.cmp(&a.waited).then_with(|| one.cmp(other)));
        all.truncate(most);
        (all, since)
    }
}

impl HotKeyWindows {
    fn rotate(&mut self) {
        let passed = self.since.elapsed();
        if passed < WINDOW {
            return;
        }
        let current = std::mem::take(&mut self.current);
        // If no request came for longer than a window, the last window is empty.
        self.last = if passed < 2 * WINDOW { current } else { HotKeySketch::default() };
        self.since = Instant::now();
    }
}

impl HotKeySketch {
    fn add(&mut self, key: &ResourceKey, waited: u64, refused: bool) {
        if !self.counts.contains_key(key) && self.counts.len() >= MAX_KEYS {
            self.evict_smallest(key);
        }
        let count = self.counts.entry(key.clone()).or_default();
        count.waited = count.waited.saturating_add(waited);
        count.requests += 1;
        count.refused += u64::from(refused);
    }

    fn evict_smallest(&mut self, key: &ResourceKey) {
        let least = self.counts.iter().min_by_key(|(_, count)| count.waited);
        if let Some((least, HotKeyCount { waited, .. })) = least.map(|(key, count)| (key.clone(), *count)) {
            self.counts.remove(&least);
            self.counts.insert(key.clone(), HotKeyCount { waited, over: waited, requests: 0, refused: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> ResourceKey {
        ResourceKey::parse(&format!("k/{n}")).expect("a key")
    }

    /// The key with the longest wait stays first among far more keys than are counted, within its error bound.
    #[test]
    fn hot_key_is_found_among_many() {
        let hot = HotKeys::default();
        for n in 0..20 * MAX_KEYS {
            hot.record_wait(&[key(n)], Duration::from_millis(1), false);
            if n % 10 == 0 {
                hot.record_wait(&[key(usize::MAX)], Duration::from_millis(50), n % 20 == 0);
            }
        }
        let (top, _) = hot.top(3);
        assert_eq!(top[0].0, key(usize::MAX));
        let truth = (20 * MAX_KEYS / 10) as u64 * 50_000;
        assert!(top[0].1.waited >= truth && top[0].1.waited - top[0].1.over <= truth, "{top:?}");
        let windows = hot.0.lock().expect("no panic");
        assert!(windows.current.counts.len() <= MAX_KEYS);
    }

    /// Keys come in the order of the total time that requests waited for them, longest first.
    #[test]
    fn keys_are_ordered_by_total_wait() {
        let hot = HotKeys::default();
        hot.record_wait(&[key(1), key(2)], Duration::from_millis(5), false);
        hot.record_wait(&[key(2)], Duration::from_millis(5), true);
        let (top, _) = hot.top(9);
        let named: Vec<_> =
            top.iter().map(|(key, count)| (key.as_str(), count.requests, count.refused)).collect();
        assert_eq!(named, [("k/2", 2, 1), ("k/1", 1, 0)]);
    }
}
