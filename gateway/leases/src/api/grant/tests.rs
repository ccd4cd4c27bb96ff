//! The races between a request for a lease, its repeats and its grant. The test takes the place of the worker: the lock
//! is granted exactly where the test says so, and a request runs only where the test polls it.

use std::pin::pin;

use fencegate_lock::manager::leased_lock::fixture::{LeasedLockFixture, leased_lock};
use fencegate_policies::plan::LockMode;
use fencegate_process::clock::ManualClock;
use futures_util::poll;
use tokio::{
    sync::{mpsc::UnboundedReceiver, oneshot},
    time::{Instant, advance},
};

use super::*;
use crate::{
    command::LeaseThreadCommand,
    lease::LeaseIdempotencyKey,
    lease_table::tests::{lease_table, new_lease},
};

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    api: LeaseApiState,
    tasks: UnboundedReceiver<LeaseThreadCommand>,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::<ManualClock>::default();
        let (leases, tasks) = lease_table(clock.clone());
        Self { api: LeaseApiState { leases, tickets: None }, tasks, clock }
    }

    fn wanted(&self, key: &str) -> LeaseSpec {
        let name = LeaseIdempotencyKey { key: key.into(), fingerprint: 1 };
        new_lease(self.api.leases.config().plan(), Some(name))
    }

    /// A request for a lease with this name, as its handler runs. It waits for the lock for `wait`.
    fn request(
        &self,
        key: &str,
        wait: Duration,
    ) -> impl Future<Output = Result<HeldLease, RefusalReason>> + use<> {
        let api = self.api.clone();
        let wanted = self.wanted(key);
        async move {
            let name = wanted.name.as_ref().expect("each request has one");
            let delivery = match api.leases.find_repeated(&wanted.principal, name) {
                Ok(Some(delivery)) => Ok(delivery),
                Ok(None) => api.leases.begin(wanted, wait),
                Err(refusal) => Err(refusal),
            };
            api.wait_held(delivery.map_err(|refusal| refusal.reason)?, wait)
                .await
                .map_err(|refusal| refusal.reason)
        }
    }

    /// The next lease whose lock the worker is to take; `None` if there is none.
    fn next_task(&mut self) -> Option<Arc<Lease>> {
        loop {
            match self.tasks.try_recv().ok()? {
                LeaseThreadCommand::Acquire { lease, .. } => return Some(lease),
                LeaseThreadCommand::FollowCredentials(_) => {}
                LeaseThreadCommand::AskPeer { .. } => panic!("no lease is elsewhere"),
            }
        }
    }
}

/// Has the worker grant the lock. The receiver gets a message when the lock is released.
fn grant(lease: &Lease) -> oneshot::Receiver<bool> {
    let LeasedLockFixture { lease: lock, over, .. } = leased_lock(LockMode::Exclusive);
    lease.on_granted(lock);
    over
}

/// The lease of an answer.
fn granted(answer: Result<HeldLease, RefusalReason>) -> Arc<Lease> {
    answer.map(|held| held.lease).expect("granted")
}

fn refused(answer: Result<HeldLease, RefusalReason>) -> RefusalReason {
    answer.map(drop).expect_err("refused")
}

/// A lease that a repeat was answered with outlives the first request, which is dropped after the grant and
/// before its answer.
#[tokio::test(start_paused = true)]
async fn lease_told_to_repeat_outlives_first_request() {
    let mut bench = Bench::new();
    let mut first = Box::pin(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let mut over = grant(&lease);
    let told = granted(bench.request("run-7", SECOND).await);
    assert!(Arc::ptr_eq(&told, &lease));
    drop(first);
    assert!(!lease.is_over() && over.try_recv().is_err(), "a client was told that it holds");
}

/// A lease that the first request was answered with outlives its repeat, which is dropped before its answer.
#[tokio::test(start_paused = true)]
async fn lease_told_to_first_request_outlives_repeat() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    let mut repeat = Box::pin(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending() && poll!(repeat.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let mut over = grant(&lease);
    granted(first.await);
    drop(repeat);
    assert!(!lease.is_over() && over.try_recv().is_err(), "a client was told that it holds");
}

/// If the first request is dropped while its lease waits, a repeat that waits for the same lease keeps its place
/// in the queue.
#[tokio::test(start_paused = true)]
async fn waiting_repeat_keeps_lease_of_first_request() {
    let mut bench = Bench::new();
    let mut first = Box::pin(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let mut repeat = pin!(bench.request("run-7", SECOND));
    assert!(poll!(repeat.as_mut()).is_pending());
    drop(first);
    assert!(!lease.is_over(), "somebody waits for it");
    let _over = grant(&lease);
    assert!(Arc::ptr_eq(&granted(repeat.await), &lease));
    assert!(bench.next_task().is_none(), "one lease");
}

/// A lease of which no client was told ends with the last request that waits for it, granted or not, and its name is free
/// at once: a repeat gets another lease, and not the refusal for one that is over.
#[tokio::test(start_paused = true)]
async fn untold_lease_ends_with_its_last_request() {
    for has_lock in [false, true] {
        let mut bench = Bench::new();
        let mut first = Box::pin(bench.request("run-7", SECOND));
        let mut repeat = Box::pin(bench.request("run-7", SECOND));
        assert!(poll!(first.as_mut()).is_pending() && poll!(repeat.as_mut()).is_pending());
        let lease = bench.next_task().expect("the lock is to be taken");
        let over = has_lock.then(|| grant(&lease));
        drop(first);
        assert!(!lease.is_over());
        drop(repeat);
        assert!(lease.is_over());
        if let Some(mut over) = over {
            assert_eq!(over.try_recv(), Ok(true), "the next one is granted the lock at once");
        }
        let mut again = pin!(bench.request("run-7", SECOND));
        assert!(poll!(again.as_mut()).is_pending());
        let next = bench.next_task().expect("another lease");
        assert!(!Arc::ptr_eq(&next, &lease));
        let _over = grant(&next);
        assert!(Arc::ptr_eq(&granted(again.await), &next));
    }
}

/// A lease that its client may have used is granted to no repeat, and to no request that still waits for it.
#[tokio::test(start_paused = true)]
async fn used_lease_is_granted_once() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let mut over = grant(&lease);
    granted(bench.request("run-7", SECOND).await);
    bench.api.leases.end(&lease, LeaseEndReason::Released);
    assert_eq!(over.try_recv(), Ok(true));
    assert_eq!(refused(first.await), RefusalReason::StaleToken);
    assert_eq!(refused(bench.request("run-7", SECOND).await), RefusalReason::StaleToken);
    assert!(bench.next_task().is_none(), "one lease");
}

/// If the wait for another holder times out, the request and its repeat have the same outcome, and the next
/// repeat gets another lease.
#[tokio::test(start_paused = true)]
async fn repeat_has_outcome_of_first_request() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    let mut repeat = pin!(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending() && poll!(repeat.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    bench.api.leases.end(&lease, LeaseEndReason::GaveUp);
    assert_eq!([refused(first.await), refused(repeat.await)], [RefusalReason::Locked; 2]);
    assert!(bench.next_task().is_none(), "nothing waits again");
    let mut again = pin!(bench.request("run-7", SECOND));
    assert!(poll!(again.as_mut()).is_pending());
    assert!(!Arc::ptr_eq(&bench.next_task().expect("another lease"), &lease));
}

/// A request whose wait ends while another request waits for the same lease is refused as in progress. The lease
/// ends with the last of these requests, which is refused because the lock service does not respond.
#[tokio::test(start_paused = true)]
async fn undecided_request_is_in_progress_while_lease_waits() {
    let mut bench = Bench::new();
    let begun = Instant::now();
    let mut first = pin!(bench.request("run-7", Duration::ZERO));
    assert!(poll!(first.as_mut()).is_pending());
    advance(SECOND).await;
    let mut repeat = pin!(bench.request("run-7", Duration::ZERO));
    assert!(poll!(repeat.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    assert_eq!(refused(first.await), RefusalReason::LeaseInProgress);
    assert!(!lease.is_over());
    assert!((2 * SECOND..3 * SECOND).contains(&begun.elapsed()));
    assert_eq!(refused(repeat.await), RefusalReason::LockService);
    assert!(lease.is_over());
    assert!((3 * SECOND..4 * SECOND).contains(&begun.elapsed()), "each has its own wait");
}

/// A lease whose client knows its id waits for as long as it is renewed, whether or not a repeat waits for its
/// grant. The repeat is refused as in progress when its own wait is over.
#[tokio::test(start_paused = true)]
async fn repeat_of_queued_lease_is_in_progress() {
    let mut bench = Bench::new();
    let delivery =
        bench.api.leases.begin(bench.wanted("run-7"), 60 * SECOND).map_err(|refusal| refusal.reason);
    let delivery = delivery.expect("admitted");
    let document = bench.api.document(delivery.lease());
    drop(delivery);
    let lease = bench.next_task().expect("the lock is to be taken");
    assert_eq!(document.lease, Some(lease.id.to_secret_text()));
    assert_eq!(refused(bench.request("run-7", SECOND).await), RefusalReason::LeaseInProgress);
    let repeat = Box::pin(bench.request("run-7", SECOND));
    drop(repeat);
    assert!(!lease.is_over(), "its client can renew it");
    let _over = grant(&lease);
    assert!(Arc::ptr_eq(&granted(bench.request("run-7", SECOND).await), &lease));
}

/// While the gateway stops, a request whose lease waits is refused, and a repeat is answered with a lease that
/// is held, so that its client can give it back.
#[tokio::test(start_paused = true)]
async fn stopping_gateway_tells_held_lease() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    let mut waiting = pin!(bench.request("run-8", SECOND));
    assert!(poll!(first.as_mut()).is_pending() && poll!(waiting.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let _over = grant(&lease);
    bench.api.leases.drain().cancel();
    assert!(Arc::ptr_eq(&granted(first.await), &lease));
    for _ in 0..8 {
        assert!(Arc::ptr_eq(&granted(bench.request("run-7", SECOND).await), &lease));
    }
    assert_eq!(refused(waiting.await), RefusalReason::Draining);
}

/// If the lease expires while the process is paused between the grant and the answer, the request is refused,
/// also if it runs before the sweep.
#[tokio::test(start_paused = true)]
async fn expired_lease_is_not_told_as_held() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let mut over = grant(&lease);
    bench.clock.advance(60 * SECOND);
    assert_eq!(refused(first.await), RefusalReason::LockService);
    assert_eq!((lease.is_over(), over.try_recv()), (true, Ok(true)));
    let mut again = pin!(bench.request("run-7", SECOND));
    assert!(poll!(again.as_mut()).is_pending());
    assert!(bench.next_task().is_some(), "another lease");
}

/// If the lease expires while its first request is paused after the grant, a repeat gets another lease at once.
#[tokio::test(start_paused = true)]
async fn repeat_of_expired_untold_lease_begins_another() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let _over = grant(&lease);
    bench.clock.advance(60 * SECOND);
    let mut repeat = pin!(bench.request("run-7", SECOND));
    assert!(poll!(repeat.as_mut()).is_pending());
    let next = bench.next_task().expect("another lease");
    assert!(lease.is_over() && !Arc::ptr_eq(&next, &lease));
    assert_eq!(refused(first.await), RefusalReason::LockService);
    let _over = grant(&next);
    assert!(Arc::ptr_eq(&granted(repeat.await), &next));
}

/// A repeat that comes after the lease has expired, but before the sweep, is refused like one that comes later.
#[tokio::test(start_paused = true)]
async fn repeat_does_not_revive_expired_lease() {
    let mut bench = Bench::new();
    let mut first = pin!(bench.request("run-7", SECOND));
    assert!(poll!(first.as_mut()).is_pending());
    let lease = bench.next_task().expect("the lock is to be taken");
    let _over = grant(&lease);
    granted(first.await);
    bench.clock.advance(60 * SECOND);
    assert_eq!(refused(bench.request("run-7", SECOND).await), RefusalReason::StaleToken);
    assert!(lease.is_over());
}
