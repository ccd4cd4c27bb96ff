//! The sequence numbers of the nodes below one parent reach their limit: the parent is replaced when the queue below
//! it is empty, and tokens go on growing.

use std::time::Duration;

use fencegate_lock::manager::{
    grant_guard::GrantGuard,
    lock_manager::{AcquireError, LockManager},
    lock_request::{LockRequest, LockWaitPlace},
};
use fencegate_policies::plan::{ForeignLockLayout, LockLocation, LockMode, LockReusePolicy};
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble, SimSession};
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkConnector};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::sleep,
};

use crate::{
    faulty_client::{FaultInjector, FaultyClient, GatewayLockStack, key, parent},
    plan::ROOT,
    simulated_time,
};

const T: Duration = Duration::from_secs(2);

/// Only nodes with the numbers 0 to 2 may hold.
const LIMIT: u32 = 2;

struct SequenceFixture {
    ensemble: SimEnsemble,
    gateways: Vec<GatewayLockStack>,
    looker: SimSession,
}

impl SequenceFixture {
    async fn new() -> Self {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let mut gateways = Vec::new();
        for _ in 0..2 {
            let library =
                FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: FaultInjector::new() };
            gateways.push(GatewayLockStack::with_sequence_limit(library, LIMIT).await);
        }
        let looker = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        Self { ensemble, gateways, looker }
    }

    /// Requests keys at a gateway.
    fn spawn_acquire(
        &self,
        gateway: usize,
        names: &[&'static str],
    ) -> JoinHandle<Result<GrantGuard, AcquireError>> {
        self.spawn_acquire_with(gateway, names, &KeyOptions::default())
    }

    fn spawn_acquire_with(
        &self,
        gateway: usize,
        names: &[&'static str],
        of: &KeyOptions,
    ) -> JoinHandle<Result<GrantGuard, AcquireError>> {
        spawn_local(acquire(self.gateways[gateway].keeper.clone(), names.to_vec(), of.clone()))
    }

    /// Returns when this number of nodes wait in the queue of the key.
    async fn wait_queued(&self, name: &str, many: usize) {
        let parent = parent(name);
        loop {
            let nodes = self.looker.children(&parent).await.unwrap_or_default();
            if nodes.len() == many {
                return;
            }
            sleep(T / 100).await;
        }
    }

    async fn end(self) {
        for gateway in self.gateways {
            gateway.stop().await;
        }
        let left = |path: &String| path.matches('/').count() > 3 && path.contains("/locks/");
        let left: Vec<String> = self.ensemble.paths().into_iter().filter(left).collect();
        assert!(left.iter().all(|path| path.matches('/').count() == 4), "lock nodes are left: {left:?}");
    }
}

/// The options of a request: the time for which it may go on after its holder is gone, and the locations of the
/// locks.
#[derive(Clone, Default)]
struct KeyOptions {
    delay: Option<Duration>,
    sites: Vec<LockLocation>,
}

async fn acquire(
    keeper: LockManager,
    names: Vec<&'static str>,
    of: KeyOptions,
) -> Result<GrantGuard, AcquireError> {
    let keys: Vec<_> = names.into_iter().map(key).collect();
    let mode = LockMode::Exclusive;
    let hold = LockReusePolicy::Strict;
    let wait = T * 20;
    let route = "sim".into();
    let sites = &of.sites;
    let queue = 100;
    let waits = LockWaitPlace::Here;
    let delay = of.delay;
    keeper
        .acquire(LockRequest { keys: &keys, sites, mode, hold, wait, queue, waits, delay, route: &route })
        .await
}

/// The number of digits that the server appends to a sequential name.
const DIGITS: usize = 10;

fn sequence(tenure: &GrantGuard) -> u32 {
    let nodes = tenure.node_paths();
    let number = nodes[0].len() - DIGITS;
    nodes[0][number..].parse().expect("a numbered node")
}

fn release(tenure: GrantGuard) {
    tenure.mark_upstream_settled();
    drop(tenure);
}

/// Hands keys over from gateway to gateway. The queue is not empty at a handover, so the parent stays until its
/// numbers are used up.
async fn hand_over(stage: &SequenceFixture, names: &[&'static str], times: usize) -> Vec<(u64, u32)> {
    let mut seen = Vec::new();
    let mut held = stage.spawn_acquire(0, names).await.expect("no panic").expect("free");
    for turn in 0..times {
        seen.push((held.predispatch_token().expect("its first").number(), sequence(&held)));
        let next = stage.spawn_acquire((turn + 1) % 2, names);
        if sequence(&held) < LIMIT {
            stage.wait_queued(names[0], 2).await;
        } else {
            // The next request's node has a number above the limit: it is removed, and the request waits until the
            // parent is replaced.
            sleep(T / 2).await;
            stage.wait_queued(names[0], 1).await;
        }
        release(held);
        held = next.await.expect("no panic").expect("its turn comes");
    }
    release(held);
    seen
}

fn assert_numbers_restart(seen: &[(u64, u32)]) {
    assert!(seen.windows(2).all(|two| two[0].0 < two[1].0), "tokens grow: {seen:?}");
    assert!(seen.iter().all(|(_, number)| *number <= LIMIT), "{seen:?}");
    let numbers: Vec<u32> = seen.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 0, 1, 2, 0], "each number is used, and they begin anew");
}

/// When the sequence numbers are used up, they begin anew below a new parent, and tokens still grow.
#[test]
fn numbers_restart_below_new_parent() {
    simulated_time::run(async {
        let stage = SequenceFixture::new().await;
        assert_numbers_restart(&hand_over(&stage, &["hot"], 7).await);
        stage.end().await;
    });
}

/// When the sequence numbers of a set's keys are used up, they begin anew below new parents, and tokens still grow.
#[test]
fn numbers_of_set_keys_restart() {
    simulated_time::run(async {
        let stage = SequenceFixture::new().await;
        assert_numbers_restart(&hand_over(&stage, &["hot", "warm"], 7).await);
        stage.end().await;
    });
}

/// A parent with a record is not replaced: a request whose number is above the last one is refused, and the record
/// stays.
#[test]
fn parent_with_record_is_not_replaced() {
    simulated_time::run(async {
        let stage = SequenceFixture::new().await;
        let first = stage.spawn_acquire(0, &["hot"]).await.expect("no panic").expect("free");
        let second = stage.spawn_acquire(1, &["hot"]);
        stage.wait_queued("hot", 2).await;
        release(first);
        let second = second.await.expect("no panic").expect("its turn");
        let third = stage.spawn_acquire(0, &["hot"]);
        stage.wait_queued("hot", 2).await;
        release(second);
        let third = third.await.expect("no panic").expect("its turn");
        assert_eq!(sequence(&third), LIMIT);
        let parent = parent("hot");
        let record = [MultiOp::Set { path: &parent, data: b"a record of a former policy" }];
        stage.looker.commit(&record).await.expect("written");
        let fourth = stage.spawn_acquire(1, &["hot"]);
        sleep(T).await;
        release(third);
        let fourth = fourth.await.expect("no panic");
        assert!(matches!(fourth, Err(AcquireError::KeyLimit(_))), "{:?}", fourth.err());
        let (data, _) = stage.looker.data(&parent).await.expect("it is there");
        assert_eq!(data, b"a record of a former policy");
        stage.end().await;
    });
}

#[test]
fn parent_replacement_waits_for_foreign_nodes() {
    simulated_time::run(async {
        let stage = SequenceFixture::new().await;
        let parent = parent("hot");
        // Nodes of another client have used up the numbers, and stay for a while.
        for folder in [format!("{ROOT}/locks"), parent.rsplit_once('/').expect("absolute").0.to_owned()] {
            drop(stage.looker.create(&folder, b"", NodeCreateMode::Persistent).await);
        }
        stage.looker.create(&parent, b"", NodeCreateMode::Container).await.expect("made");
        for _ in 0..=LIMIT {
            let node = format!("{parent}/_c_0-w-");
            stage.looker.create(&node, b"", NodeCreateMode::EphemeralSequential).await.expect("made");
        }
        let before = stage.looker.children(&parent).await.expect("there");
        let asked = stage.spawn_acquire(0, &["hot"]);
        sleep(T).await;
        for node in before {
            stage.looker.delete(&format!("{parent}/{node}")).await.expect("ours");
        }
        let held = asked.await.expect("no panic").expect("free");
        assert_eq!(sequence(&held), 0);
        release(held);
        stage.end().await;
    });
}

/// The last number below a parent that is not replaced. Numbers near 2^31 - 1 are not used, because there the server
/// gives one number to several nodes.
const LAST: i32 = i32::MAX - (1 << 20) + 1;

/// A request whose number is above the last one is refused below parents that are not replaced: those with a record,
/// and those of foreign programs.
#[test]
fn number_after_last_is_refused() {
    let foreign = LockLocation::Foreign { layout: ForeignLockLayout::Kazoo, path: "/app/locks/hot".into() };
    let elsewhere =
        LockLocation::Foreign { layout: ForeignLockLayout::Kazoo, path: "/app/locks/warm".into() };
    let delayed = KeyOptions { delay: Some(T), sites: Vec::new() };
    let among_others = KeyOptions { delay: None, sites: vec![foreign, elsewhere] };
    for (of, parents) in [
        (delayed, [parent("hot"), parent("warm")]),
        (among_others, ["/app/locks/hot".to_owned(), "/app/locks/warm".to_owned()]),
    ] {
        for names in [&["hot"][..], &["hot", "warm"]] {
            let of = KeyOptions { sites: of.sites.iter().take(names.len()).cloned().collect(), ..of.clone() };
            let parents = &parents[..names.len()];
            simulated_time::run(async {
                let stage = SequenceFixture::new().await;
                let first = stage.spawn_acquire_with(0, names, &of).await.expect("no panic").expect("free");
                parents.iter().for_each(|parent| stage.ensemble.set_child_count(parent, LAST));
                let second = stage.spawn_acquire_with(1, names, &of);
                sleep(T).await;
                release(first);
                let second = second.await.expect("no panic").expect("its number is the last one");
                assert_eq!(i64::from(sequence(&second)), i64::from(LAST));
                let third = stage.spawn_acquire_with(0, names, &of).await.expect("no panic");
                assert!(matches!(third, Err(AcquireError::KeyLimit(_))), "{names:?}: {:?}", third.err());
                release(second);
                sleep(T).await;
                stage.end().await;
            });
        }
    }
}
