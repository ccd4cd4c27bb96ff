//! Remembers which requests wait for or hold a key, how the last requests ended, and which callers a guard has
//! rejected. This is only for display: no decision depends on it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_refusal::{DispatchOutcome, RefusalReason};
use hyper::{Method, header::HeaderValue};
use smallvec::SmallVec;

/// The tracked requests of the whole gateway.
#[derive(Debug)]
pub struct RequestTracker {
    shards: [Mutex<RequestTrackerShard>; SHARDS],
    next: AtomicU64,
}

/// Many shards, so that workers rarely wait for one lock.
const SHARDS: usize = 16;
/// The number of finished requests that are still listed, in each shard. In all shards they take 600 KB of memory, or
/// 3.5 MB with keys and names of maximal length.
const MAX_FINISHED_PER_SHARD: usize = 256;

#[derive(Debug, Default)]
struct RequestTrackerShard {
    /// The active requests of each key; most keys have one.
    here: HashMap<ResourceKey, SmallVec<[Arc<TrackedRequest>; 1]>>,
    /// The finished requests; the newest is the last.
    over: VecDeque<(ResourceKey, FinishedRequest)>,
}

/// A tracked request. All of its keys share this value.
#[derive(Debug)]
struct TrackedRequest {
    number: u64,
    staying: Mutex<ActiveRequest>,
}

/// A request that waits for its keys, or holds them.
#[derive(Debug, Clone)]
pub struct ActiveRequest {
    /// `X-Request-Id` of its answer.
    pub request: Option<HeaderValue>,
    pub route: Arc<str>,
    pub mode: LockMode,
    pub came: Instant,
    /// The time at which the keys of the request were granted.
    pub works: Option<Instant>,
}

/// A request that is over.
#[derive(Debug, Clone)]
pub struct FinishedRequest {
    /// `X-Request-Id` of its answer.
    pub request: Option<HeaderValue>,
    pub route: Arc<str>,
    pub at: SystemTime,
    pub took: Duration,
    pub status: u16,
    pub outcome: DispatchOutcome,
    pub reason: Option<RefusalReason>,
    /// The token of its last dispatch.
    pub token: Option<FencingToken>,
}

/// Keeps the request listed at its keys until this is dropped.
pub struct RequestTrackGuard {
    all: Arc<RequestTracker>,
    keys: Rc<[ResourceKey]>,
    present: Arc<TrackedRequest>,
}

impl Default for RequestTracker {
    fn default() -> Self {
        Self { shards: Default::default(), next: AtomicU64::new(0) }
    }
}

impl RequestTracker {
    pub fn track(self: &Arc<Self>, keys: &Rc<[ResourceKey]>, staying: &ActiveRequest) -> RequestTrackGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let present = Arc::new(TrackedRequest { number, staying: Mutex::new(staying.clone()) });
        for key in keys.iter() {
            self.shard(key).here.entry(key.clone()).or_default().push(present.clone());
        }
        RequestTrackGuard { all: self.clone(), keys: keys.clone(), present }
    }

    /// The active requests at `key`, the oldest first.
    pub fn active(&self, key: &ResourceKey) -> Vec<ActiveRequest> {
        let mut here: Vec<_> = self.shard(key).here.get(key).into_iter().flatten().cloned().collect();
        here.sort_by_key(|present| present.number);
        here.into_iter().map(|present| unpoisoned(&present.staying).clone()).collect()
    }

    /// The last finished requests at `key`, the newest first.
    pub fn finished(&self, key: &ResourceKey, most: usize) -> Vec<FinishedRequest> {
        let shard = self.shard(key);
        let of_key = shard.over.iter().rev().filter(|(other, _)| other == key);
        of_key.take(most).map(|(_, over)| over.clone()).collect()
    }

    /// The keys of all listed requests for which `wanted` is true. A key may occur several times.
    pub fn keys(&self, wanted: impl Fn(&ResourceKey) -> bool) -> Vec<ResourceKey> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let all = shard.here.keys().chain(shard.over.iter().map(|(key, _)| key));
            keys.extend(all.filter(|key| wanted(key)).cloned());
        }
        keys
    }

    fn shard(&self, key: &ResourceKey) -> MutexGuard<'_, RequestTrackerShard> {
        unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS])
    }
}

/// No panic can leave the map half changed, so a poisoned lock is still good.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestTrackGuard {
    /// Records that the keys of the request are granted.
    pub fn mark_granted(&self) {
        unpoisoned(&self.present.staying).works = Some(Instant::now());
    }

    /// Records that the answer of the request is known. The request stays listed as active until its whole answer has
    /// left.
    pub fn record_finished(&self, over: &FinishedRequest) {
        for key in self.keys.iter() {
            let mut shard = self.all.shard(key);
            if shard.over.len() >= MAX_FINISHED_PER_SHARD {
                shard.over.pop_front();
            }
            shard.over.push_back((key.clone(), over.clone()));
        }
    }
}

impl Drop for RequestTrackGuard {
    fn drop(&mut self) {
        for key in self.keys.iter() {
            let mut shard = self.all.shard(key);
            let Entry::Occupied(mut here) = shard.here.entry(key.clone()) else { continue };
            here.get_mut().retain(|present| !Arc::ptr_eq(present, &self.present));
            if here.get().is_empty() {
                here.remove();
            }
        }
    }
}

/// Remembers, for each refusal reason, the last caller that came to a guard without a valid claim, so that an operator
/// can find that caller. The map is keyed by the words of refusals, of which there are only a few.
#[derive(Debug, Default)]
pub struct RejectedCallers(Mutex<BTreeMap<&'static str, RejectedGuardCaller>>);

#[derive(Debug, Clone)]
pub struct RejectedGuardCaller {
    pub at: SystemTime,
    pub peer: SocketAddr,
    /// The client for which the caller forwards the request, if that is another one.
    pub client: Option<IpAddr>,
    pub method: Method,
}

impl RejectedCallers {
    pub fn record(&self, word: &'static str, stranger: RejectedGuardCaller) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(word, stranger);
    }

    pub fn last(&self, word: &str) -> Option<RejectedGuardCaller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(word).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ResourceKey {
        ResourceKey::parse(text).expect("a key")
    }

    fn active_request(request: &'static str) -> ActiveRequest {
        ActiveRequest {
            request: Some(HeaderValue::from_static(request)),
            route: "pay".into(),
            mode: LockMode::Exclusive,
            came: Instant::now(),
            works: None,
        }
    }

    fn finished_request(number: u16) -> FinishedRequest {
        FinishedRequest {
            request: None,
            route: "pay".into(),
            at: SystemTime::now(),
            took: Duration::ZERO,
            status: number,
            outcome: DispatchOutcome::Done,
            reason: None,
            token: None,
        }
    }

    /// A request is listed at each of its keys, first as waiting and then as granted, until it ends.
    #[test]
    fn request_is_listed_until_it_ends() {
        let tracker = Arc::<RequestTracker>::default();
        let first = tracker.track(&[key("a"), key("b")].into(), &active_request("one"));
        let second = tracker.track(&[key("b")].into(), &active_request("two"));
        first.mark_granted();
        let seen = |name| {
            let here = tracker.active(&key(name)).into_iter();
            here.map(|one| (one.request.expect("named"), one.works.is_some())).collect::<Vec<_>>()
        };
        let named = |name, works| (HeaderValue::from_static(name), works);
        assert_eq!(seen("a"), [named("one", true)]);
        assert_eq!(seen("b"), [named("one", true), named("two", false)]);
        drop(first);
        assert_eq!((seen("a").len(), seen("b")), (0, vec![named("two", false)]));
        drop(second);
        assert!(tracker.shards.iter().all(|shard| shard.lock().expect("whole").here.is_empty()));
    }

    /// All finished requests that are kept take no more memory than the comment on `MAX_FINISHED_PER_SHARD` says.
    #[test]
    fn finished_requests_fit_documented_memory() {
        let each = size_of::<(ResourceKey, FinishedRequest)>();
        // The length of the longest request id, and the size of the counters of both reference counts.
        let name = 128;
        let counts = 64;
        let all = SHARDS * MAX_FINISHED_PER_SHARD;
        assert!((550_000..600_000).contains(&(all * each)), "{each} bytes each");
        let longest = all * (each + ResourceKey::MAX_SEGMENT + name + counts);
        assert!((3_000_000..3_500_000).contains(&longest), "{longest} bytes");
    }

    /// Finished requests of a key are listed newest first; beyond the limit the oldest are forgotten.
    #[test]
    fn newest_finished_requests_are_kept() {
        let tracker = Arc::<RequestTracker>::default();
        let stay = tracker.track(&[key("a")].into(), &active_request("one"));
        for number in 0..2 * MAX_FINISHED_PER_SHARD {
            stay.record_finished(&finished_request(u16::try_from(number).expect("few")));
        }
        let statuses: Vec<_> =
            tracker.finished(&key("a"), 3).into_iter().map(|one| usize::from(one.status)).collect();
        assert_eq!(
            statuses,
            [2 * MAX_FINISHED_PER_SHARD - 1, 2 * MAX_FINISHED_PER_SHARD - 2, 2 * MAX_FINISHED_PER_SHARD - 3]
        );
        assert_eq!(tracker.finished(&key("a"), usize::MAX).len(), MAX_FINISHED_PER_SHARD);
        assert!(tracker.finished(&key("b"), 3).is_empty());
    }
}
