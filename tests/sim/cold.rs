//! The cost of a lock on a free key, in requests to ZooKeeper and in round trips. Keys that share a transaction must
//! not cost each other their locks.

mod coming_back;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use fencegate_lock::manager::grant_guard::GrantGuard;
use fencegate_policies::plan::LockReusePolicy;
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble, SimSession};
use fencegate_zookeeper::session::{
    client::{NodeCreateMode, ZkClient, ZkConnector},
    retained_parents::RETENTION,
};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    faulty_client::{
        FaultInjector, FaultyClient, GatewayLockStack, SessionRequest, ZkRequestFate, unanswered,
    },
    plan::ROOT,
    simulated_time,
};

/// The session timeout. It is long enough for heartbeats to be in time on this slow connection.
const T: Duration = Duration::from_secs(12);

/// The latency of a message in one direction.
const WAY: Duration = Duration::from_millis(10);
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// The number of clients, each with a key of its own.
const KEYS: u32 = 32;

/// The number of requests about lock nodes and their parents.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct ZkRequestCounts {
    transactions: u32,
    creates: u32,
    deletes: u32,
    lists: u32,
    looks: u32,
}

impl ZkRequestCounts {
    fn requests(&self) -> u32 {
        self.transactions + self.creates + self.deletes + self.lists + self.looks
    }

    fn count_request(&mut self, asked: SessionRequest<'_>) {
        *match asked {
            SessionRequest::Commit { .. } => &mut self.transactions,
            SessionRequest::Create { .. } => &mut self.creates,
            SessionRequest::Delete { .. } => &mut self.deletes,
            SessionRequest::Children { .. } | SessionRequest::ChildrenOf { .. } => &mut self.lists,
            SessionRequest::Data { .. } | SessionRequest::Other { .. } => &mut self.looks,
        } += 1;
    }
}

fn is_of_locks(asked: SessionRequest<'_>) -> bool {
    is_of_a_key(asked.path())
}

/// True for the path of a key's nodes, and false for that of a folder of keys.
fn is_of_a_key(path: &str) -> bool {
    path.starts_with(&format!("{ROOT}/locks/")) && path.matches('/').count() > 3
}

/// True for a transaction that has steps for several keys.
fn is_shared(asked: SessionRequest<'_>) -> bool {
    matches!(asked, SessionRequest::Commit { steps } if is_of_locks(asked) && steps.len() > 2)
}

struct CostFixture {
    locks: GatewayLockStack,
    ensemble: SimEnsemble,
    doctor: FaultInjector,
}

impl CostFixture {
    async fn start() -> Self {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let doctor = FaultInjector::new();
        let bench = Self { locks: session(&ensemble, &doctor).await, ensemble, doctor };
        // Creates the folders of the keys, which stay, so that the measured requests need not.
        bench.use_all_at_once().await;
        bench.assert_nothing_left().await;
        bench.doctor.wire().delay(WAY..WAY);
        bench
    }

    async fn acquire(&self, key: u32) -> GrantGuard {
        acquire(&self.locks, key).await
    }

    /// Uses the key of every client so often that its parent is kept.
    async fn reuse_all_keys(&self) {
        for _ in 0..10 {
            self.use_all_at_once().await;
            sleep(ROUND_TRIP * 10).await;
        }
        assert_eq!(
            self.remaining_paths().len(),
            KEYS as usize,
            "a parent each: {:?}",
            self.remaining_paths()
        );
    }

    async fn connect_stranger(&self) -> SimSession {
        self.ensemble.client(&self.ensemble.wire(), T).connect().await.expect("a session")
    }

    /// Takes and releases the keys of all clients at the same time.
    async fn use_all_at_once(&self) {
        join_all((0..KEYS).map(async |key| release(self.acquire(key).await))).await;
    }

    /// Takes and releases the keys of all clients. The answers of two shared transactions are lost: of one that
    /// creates nodes, and of one that removes them.
    async fn run_with_two_lost_answers(&self, fate: ZkRequestFate) {
        let lost = Rc::<Cell<u32>>::default();
        let counting = lost.clone();
        self.doctor.set_rule(move |request| {
            if !is_shared(request) || counting.get() == 2 {
                return ZkRequestFate::Passes;
            }
            counting.set(counting.get() + 1);
            fate.clone()
        });
        let tenures = join_all((0..KEYS).map(|key| self.acquire(key)));
        let tenures = timeout(ROUND_TRIP * 20, tenures).await.expect("each looks at its own key");
        assert_eq!(
            self.remaining_paths().len(),
            2 * tenures.len(),
            "a parent and a node each: {:?}",
            self.remaining_paths()
        );
        tenures.into_iter().for_each(release);
        sleep(ROUND_TRIP * 5).await;
        assert_eq!(lost.get(), 2, "not exercised");
    }

    fn count_requests(&self) -> Rc<RefCell<ZkRequestCounts>> {
        let tally = Rc::<RefCell<ZkRequestCounts>>::default();
        let counting = tally.clone();
        self.doctor.set_rule(move |request| {
            if is_of_locks(request) {
                counting.borrow_mut().count_request(request);
            }
            ZkRequestFate::Passes
        });
        tally
    }

    fn remaining_paths(&self) -> Vec<String> {
        let mut paths = self.ensemble.paths();
        paths.retain(|path| is_of_a_key(path));
        paths
    }

    async fn assert_nothing_left(&self) {
        sleep(ROUND_TRIP * 10).await;
        assert_eq!(self.remaining_paths(), [""; 0]);
    }

    /// Like [`Self::assert_nothing_left`], for keys that are used often: their parents are kept for a while.
    async fn assert_nothing_kept(&self) {
        sleep(ROUND_TRIP * 10).await;
        let left = self.remaining_paths();
        assert!(left.iter().all(|path| path.matches('/').count() == 4), "a lock node is left: {left:?}");
        // In this time the session looks twice for kept parents that are not used any more.
        sleep(RETENTION * 3 / 2).await;
        assert_eq!(self.remaining_paths(), [""; 0]);
    }
}

async fn session(ensemble: &SimEnsemble, doctor: &FaultInjector) -> GatewayLockStack {
    GatewayLockStack::new(FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() })
        .await
}

/// The two meanings of a lost answer: the transaction was done, or was not.
fn lost_answers() -> [ZkRequestFate; 2] {
    [ZkRequestFate::Done(unanswered()), ZkRequestFate::Refused(unanswered())]
}

async fn acquire(locks: &GatewayLockStack, key: u32) -> GrantGuard {
    locks
        .acquire_delayed(&[&format!("key-{key}")], LockReusePolicy::Strict, T * 5, None)
        .await
        .expect("in time")
}

fn release(tenure: GrantGuard) {
    tenure.mark_upstream_settled();
}

/// Locking a single key costs two requests in one round trip, and one request to release it.
#[test]
fn single_lock_costs_one_round_trip() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        let tally = bench.count_requests();
        let began = Instant::now();
        let tenure = bench.acquire(1).await;
        assert_eq!(began.elapsed(), ROUND_TRIP);
        assert_eq!(tally.take(), ZkRequestCounts { transactions: 1, looks: 1, ..ZkRequestCounts::default() });
        release(tenure);
        bench.assert_nothing_left().await;
        assert_eq!(tally.take(), ZkRequestCounts { transactions: 1, ..ZkRequestCounts::default() });
        bench.locks.stop().await;
    });
}

/// Requests for many keys at the same time share transactions: two locks cost less than one request to ZooKeeper.
#[test]
fn concurrent_requests_share_transactions() {
    const ROUNDS: u32 = 20;
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        let tally = bench.count_requests();
        let longest = Cell::new(Duration::ZERO);
        join_all((0..KEYS).map(async |key| {
            sleep(Duration::from_micros(700) * key).await;
            for _ in 0..ROUNDS {
                let began = Instant::now();
                let tenure = bench.acquire(key).await;
                longest.set(longest.get().max(began.elapsed()));
                sleep(Duration::from_millis(1)).await;
                release(tenure);
                sleep(Duration::from_micros(100)).await;
            }
        }))
        .await;
        let per_lock = f64::from(tally.borrow().requests()) / f64::from(KEYS * ROUNDS);
        eprintln!("{:?}: {per_lock:.2} requests per lock, {:?} at most", tally.borrow(), longest.get());
        assert!(per_lock < 0.5, "{:?}", tally.borrow());
        assert!(longest.get() <= ROUND_TRIP * 2, "{:?}", longest.get());
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
    });
}

/// If another program has created the parent of one key, and so the create of that parent fails in a shared
/// transaction, the other keys of the transaction are still locked.
#[test]
fn one_refused_key_blocks_no_other() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        let tenure = bench.acquire(KEYS - 3).await;
        let parent = bench.remaining_paths().swap_remove(0);
        release(tenure);
        bench.assert_nothing_left().await;
        let stranger = bench.connect_stranger().await;
        stranger.create(&parent, b"", NodeCreateMode::Container).await.expect("made");

        let tally = bench.count_requests();
        let began = Instant::now();
        let tenures = join_all((0..KEYS).map(|key| bench.acquire(key))).await;
        // The shared transaction waits behind two others, is refused, and is repeated without the refused key, which
        // is then locked below the existing parent.
        assert_eq!(began.elapsed(), ROUND_TRIP * 4);
        assert_eq!(tally.borrow().creates, 1);
        // From now on the gateway knows that this key is shared, so it does not delay the other keys again.
        tenures.into_iter().for_each(release);
        bench.assert_nothing_left().await;
        stranger.create(&parent, b"", NodeCreateMode::Container).await.expect("made");
        let began = Instant::now();
        let (others, disputed) = (0..KEYS).partition::<Vec<_>, _>(|key| *key != KEYS - 3);
        let others = async {
            let tenures = join_all(others.into_iter().map(|key| bench.acquire(key))).await;
            (began.elapsed(), tenures)
        };
        let (others, disputed) = tokio::join!(others, bench.acquire(disputed[0]));
        assert_eq!(others.0, ROUND_TRIP * 2);
        others.1.into_iter().chain([disputed]).for_each(release);
        bench.assert_nothing_left().await;
        bench.locks.stop().await;
    });
}

/// If the answer to a shared transaction is lost, whether or not the transaction was done, each request finds out
/// the result for its own key.
#[test]
fn lost_shared_transaction_leaves_no_node() {
    for fate in lost_answers() {
        simulated_time::run(async {
            let bench = CostFixture::start().await;
            bench.run_with_two_lost_answers(fate).await;
            bench.assert_nothing_left().await;
            bench.locks.stop().await;
        });
    }
}

/// No two grants of the same key come from the same transaction, so their tokens differ.
#[test]
fn transactions_are_shared_across_keys_only() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        let granted = RefCell::<BTreeMap<u32, Vec<u64>>>::default();
        join_all((0..KEYS * 2).map(async |client| {
            for round in 0..20 {
                // Each key has one client, and the other half of the clients uses the first five keys in turn.
                let key = if client < KEYS { client } else { (client + round) % 5 };
                let tenure = bench.acquire(key).await;
                let epoch = tenure.predispatch_token().expect("nothing was sent").number();
                granted.borrow_mut().entry(key).or_default().push(epoch);
                sleep(Duration::from_micros(u64::from(client * 37 % 900))).await;
                release(tenure);
            }
        }))
        .await;
        let granted = granted.into_inner();
        for (key, epochs) in &granted {
            assert!(epochs.is_sorted_by(|one, next| one < next), "key {key}: {epochs:?}");
        }
        let mut all: Vec<_> = granted.into_values().flatten().collect();
        let locks = all.len();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() < locks * 3 / 4, "not exercised: {locks} locks of {} transactions", all.len());
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
    });
}
