//! The state of one endpoint, shared by all workers: its load, its health, and its connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fencegate_policies::{
    load_balance::{self, LbCandidate},
    plan::{OutlierEjection, PoolLimits},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::address::EndpointAddresses;

/// An endpoint, shared by all workers, and by all plans that have it.
#[derive(Debug)]
pub struct Endpoint {
    /// A number that is unique among all endpoints, also those of later plans.
    pub id: u64,
    /// The name in the policy: `host:port`, or `unix:/path`.
    pub name: Arc<str>,
    pub addresses: Arc<EndpointAddresses>,
    hash: u64,
    limits: PoolLimits,
    /// The number of requests in flight.
    busy: AtomicUsize,
    /// The number of idle connections.
    idle: AtomicUsize,
    /// The number of requests that wait for a connection.
    waiting: AtomicUsize,
    /// The permits for connections, one for each.
    places: Arc<Semaphore>,
    wait_notifier: IdleEvictionTrigger,
    health: EndpointHealthState,
}

/// Notified when a request waits for a connection. Workers then close idle connections.
pub type IdleEvictionTrigger = watch::Sender<()>;

#[derive(Debug)]
struct EndpointHealthState {
    /// The last result of the active checks: the number of the plan that made them, with the bit [`UNHEALTHY`] below
    /// it.
    verdict: AtomicU64,
    /// The number of failed exchanges in a row.
    failures: AtomicUsize,
    /// The end of the ejection, in milliseconds after `born`. The endpoint is not ejected if that moment is in the
    /// past.
    ejected_until: AtomicU64,
    /// The number of ejections that followed each other closely.
    ejections: AtomicU64,
    born: Instant,
}

/// The bit of a check result that marks it as unhealthy.
const UNHEALTHY: u64 = 1;

/// Tells whether requests go to an endpoint, and if not, for which reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointState {
    Usable,
    Unhealthy,
    Ejected,
    /// The endpoint leaves requests without a response, and does not answer probes.
    Silent,
}

impl EndpointState {
    pub const ALL: [Self; 4] = [Self::Usable, Self::Unhealthy, Self::Ejected, Self::Silent];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Unhealthy => "unhealthy",
            Self::Ejected => "ejected",
            Self::Silent => "silent",
        }
    }
}

/// Counts a request or a connection of an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct EndpointCountGuard {
    endpoint: Arc<Endpoint>,
    counter: fn(&Endpoint) -> &AtomicUsize,
}

impl Drop for EndpointCountGuard {
    fn drop(&mut self) {
        (self.counter)(&self.endpoint).fetch_sub(1, Relaxed);
    }
}

/// The permit for one connection.
pub type ConnectionPermit = OwnedSemaphorePermit;

impl Endpoint {
    pub fn new(
        name: Arc<str>,
        addresses: Arc<EndpointAddresses>,
        limits: PoolLimits,
        bell: IdleEvictionTrigger,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let places = limits.max_connections.min(Semaphore::MAX_PERMITS);
        Self {
            id: NEXT.fetch_add(1, Relaxed),
            hash: load_balance::hash_name(&name),
            name,
            addresses,
            limits,
            busy: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            places: Arc::new(Semaphore::new(places)),
            wait_notifier: bell,
            health: EndpointHealthState {
                verdict: AtomicU64::new(0),
                failures: AtomicUsize::new(0),
                ejected_until: AtomicU64::new(0),
                ejections: AtomicU64::new(0),
                born: Instant::now(),
            },
        }
    }

    pub(crate) fn has_limits(&self, limits: &PoolLimits) -> bool {
        self.limits == *limits
    }

    pub fn candidate(&self) -> LbCandidate {
        let usable = self.state() == EndpointState::Usable;
        LbCandidate { name: self.hash, busy: self.busy.load(Relaxed), usable }
    }

    pub fn state(&self) -> EndpointState {
        if self.health.verdict.load(Relaxed) & UNHEALTHY != 0 {
            EndpointState::Unhealthy
        } else if self.health.ejected_until.load(Relaxed) > self.age_millis() {
            EndpointState::Ejected
        } else if self.addresses.all_addresses_silent() {
            EndpointState::Silent
        } else {
            EndpointState::Usable
        }
    }

    fn age_millis(&self) -> u64 {
        millis(self.health.born.elapsed())
    }

    /// Counts a request in flight.
    pub(crate) fn count_busy(self: &Arc<Self>) -> EndpointCountGuard {
        self.count(|endpoint| &endpoint.busy)
    }

    /// Counts an idle connection; `None` if the endpoint already has as many as it may have.
    pub(crate) fn count_idle(self: &Arc<Self>) -> Option<EndpointCountGuard> {
        let counted = self.count(|endpoint| &endpoint.idle);
        (self.idle.load(Relaxed) <= self.limits.max_idle).then_some(counted)
    }

    fn count(self: &Arc<Self>, what: fn(&Self) -> &AtomicUsize) -> EndpointCountGuard {
        what(self).fetch_add(1, Relaxed);
        EndpointCountGuard { endpoint: self.clone(), counter: what }
    }

    /// The number of connections, both busy and idle.
    pub fn connections(&self) -> usize {
        self.limits.max_connections.saturating_sub(self.places.available_permits())
    }

    /// Takes the permit for a further connection; `None` if there are as many connections as allowed.
    pub fn try_acquire(&self) -> Option<ConnectionPermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Makes a permit for a connection that carries no request and is not counted.
    pub(crate) fn uncounted_permit() -> ConnectionPermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().expect("nobody else has it")
    }

    /// Waits for the permit for a further connection, first come, first served.
    ///
    /// # Cancellation
    /// Dropping the future gives up the position in the queue.
    pub async fn acquire(self: Arc<Self>) -> ConnectionPermit {
        let _waiting = self.count(|endpoint| &endpoint.waiting);
        // Workers are notified after the request is counted, so that a worker that checks now sees the waiting
        // request.
        self.wait_notifier.send_replace(());
        self.places.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The number of requests that wait for a connection, at any worker.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Records that an exchange has succeeded.
    pub fn record_success(&self) {
        if self.health.failures.load(Relaxed) > 0 {
            self.health.failures.store(0, Relaxed);
        }
    }

    /// Records that an exchange has failed because of the endpoint. Returns true if there were too many failures in a
    /// row.
    pub fn record_failure(&self, eject: &OutlierEjection) -> bool {
        self.health.failures.fetch_add(1, Relaxed) + 1 >= eject.failures
            && self.state() == EndpointState::Usable
    }

    /// The number of exchanges that have failed since the last success, or since the last ejection.
    pub fn failures_in_a_row(&self) -> usize {
        self.health.failures.load(Relaxed)
    }

    /// Ejects the endpoint for a while, and for longer if the last ejection was a short time ago. Returns the time.
    pub fn eject(&self, eject: &OutlierEjection) -> Duration {
        let health = &self.health;
        health.failures.store(0, Relaxed);
        let now = self.age_millis();
        let earlier = health.ejections.load(Relaxed);
        let since_last = now.saturating_sub(health.ejected_until.load(Relaxed));
        let earlier = if since_last > millis(eject.base) { 0 } else { earlier };
        let lasts = eject.ejection_duration(u32::try_from(earlier).unwrap_or(u32::MAX));
        health.ejections.store(earlier + 1, Relaxed);
        health.ejected_until.store(now.saturating_add(millis(lasts)), Relaxed);
        lasts
    }

    /// Sets the result of the active checks that the plan with the number `plan` has made. Returns true if the result
    /// has changed.
    ///
    /// A check of an earlier plan may end after the next plan has taken over, and is then ignored: if the next plan
    /// has no checks, nothing could correct the result.
    pub(crate) fn set_check_result(&self, plan: u64, well: bool) -> bool {
        let verdict = plan << 1 | if well { 0 } else { UNHEALTHY };
        let newer = |earlier: u64| (earlier >> 1 <= plan).then_some(verdict);
        let earlier = self.health.verdict.fetch_update(Relaxed, Relaxed, newer);
        earlier.is_ok_and(|earlier| (earlier ^ verdict) & UNHEALTHY != 0)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(max_connections: usize, max_idle: usize) -> Arc<Endpoint> {
        let limits = PoolLimits { max_connections, max_idle };
        let name: Arc<str> = "a:80".into();
        let addresses = Arc::new(EndpointAddresses::new(name.clone()));
        Arc::new(Endpoint::new(name, addresses, limits, watch::Sender::new(())))
    }

    /// An endpoint is ejected after a number of failures in a row, and for longer each time.
    #[test]
    fn consecutive_failures_eject_ever_longer() {
        let endpoint = endpoint(1, 1);
        let eject = OutlierEjection { failures: 3, base: Duration::from_secs(30) };
        assert!(!endpoint.record_failure(&eject) && !endpoint.record_failure(&eject));
        endpoint.record_success();
        assert!(
            !endpoint.record_failure(&eject)
                && !endpoint.record_failure(&eject)
                && endpoint.record_failure(&eject)
        );
        assert_eq!(endpoint.eject(&eject), Duration::from_secs(30));
        assert_eq!(endpoint.state(), EndpointState::Ejected);
        assert_eq!(endpoint.eject(&eject), Duration::from_secs(60));
    }

    #[test]
    fn ejection_ends_by_itself() {
        let endpoint = endpoint(1, 1);
        let eject = OutlierEjection { failures: 1, base: Duration::ZERO };
        assert!(endpoint.record_failure(&eject));
        endpoint.eject(&eject);
        assert_eq!(endpoint.state(), EndpointState::Usable);
    }

    /// A health check reports news only when its result has changed.
    #[test]
    fn only_changed_check_result_is_news() {
        let endpoint = endpoint(1, 1);
        assert!(!endpoint.set_check_result(0, true));
        assert!(endpoint.set_check_result(0, false) && !endpoint.set_check_result(0, false));
        assert_eq!(endpoint.state(), EndpointState::Unhealthy);
        assert!(endpoint.set_check_result(0, true));
    }

    #[test]
    fn check_of_earlier_plan_is_ignored() {
        let endpoint = endpoint(1, 1);
        assert!(
            endpoint.set_check_result(1, false) && !endpoint.set_check_result(2, false),
            "the same, by the next plan"
        );
        assert!(!endpoint.set_check_result(1, true));
        assert_eq!(endpoint.state(), EndpointState::Unhealthy);
        assert!(endpoint.set_check_result(2, true) && !endpoint.set_check_result(1, false));
        assert_eq!(endpoint.state(), EndpointState::Usable);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn released_connection_slot_goes_to_waiter() {
        let endpoint = endpoint(1, 0);
        let permit = endpoint.try_acquire().expect("the first");
        assert!(endpoint.try_acquire().is_none());
        assert_eq!(endpoint.connections(), 1);
        let next = tokio::spawn(endpoint.clone().acquire());
        tokio::task::yield_now().await;
        assert_eq!(endpoint.waiting(), 1);
        drop(permit);
        let _place = next.await.expect("no panic");
        assert_eq!(endpoint.waiting(), 0);
        assert!(endpoint.count_idle().is_none(), "none may lie idle");
    }
}
