//! The total length of the paths of a session's lock nodes is bounded. A key that has a place in its queue keeps it
//! when the bound is reached.

use std::time::Duration;

use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble};
use tokio::{task::spawn_local, time::sleep};

use super::gateway::{
    AcquireError, ClockSpeed, GatewaySettings, GrantGuard, HoldMode, LockMode, LockWaitPlace, SimGateway,
    SimRequest, T, is_lock, key,
};
use crate::simulated_time;

const MOST_BYTES: usize = 512 * 1024;
const LONG: usize = 400;

fn want(names: &[String], keeping: HoldMode) -> SimRequest {
    let mut keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    keys.sort_unstable();
    SimRequest { keys, mode: LockMode::Exclusive, keeping, wait: T * 6 }
}

fn gateway(ensemble: &SimEnsemble, seed: u64) -> SimGateway {
    let scale = GatewaySettings { clocks: ClockSpeed::Right, sessions: 1 };
    SimGateway::start(ensemble, &ensemble.wire(), scale, &SeededRng::new(seed))
}

/// Takes keys one after the other until a key is refused because of the bound, and keeps them in use.
async fn fill(gateway: &SimGateway, wants: impl Iterator<Item = SimRequest>) -> Vec<GrantGuard> {
    let mut held = Vec::new();
    for want in wants {
        loop {
            match gateway.worker_handle().acquire(&want, LockWaitPlace::Here).await {
                Ok(tenure) => held.push(tenure),
                Err(AcquireError::KeyLimit(_)) => return held,
                // A new gateway has no session yet, so try again.
                Err(AcquireError::Service(_)) if held.is_empty() => {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            break;
        }
    }
    panic!("not exercised: room for {}", held.len());
}

fn bytes(ensemble: &SimEnsemble) -> usize {
    ensemble.paths().iter().filter(|path| is_lock(path)).map(String::len).sum()
}

/// Every node of a set counts toward the bound on the paths of a session.
#[test]
fn all_set_nodes_count_toward_bound() {
    simulated_time::run(async {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let gateway = gateway(&ensemble, 1);
        let sets = (0..2000).map(|set| {
            let names: Vec<_> = (0..16).map(|at| format!("{set}-{at}")).collect();
            want(&names, HoldMode::Strict)
        });
        let held = fill(&gateway, sets).await;
        let bytes = bytes(&ensemble);
        assert!((MOST_BYTES / 2..=MOST_BYTES).contains(&bytes), "{} sets, {bytes} bytes", held.len());
        drop(held);
    });
}

/// A gateway that hands a key over removes its node and queues again in one transaction, and so needs no additional
/// capacity: a request that waits there is not refused at the bound.
#[test]
fn handover_at_bound_refuses_no_waiter() {
    simulated_time::run(async {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let ours = gateway(&ensemble, 1);
        let other = gateway(&ensemble, 2);
        let names = |n: usize| [format!("{n:0>LONG$}")];
        let mut held = fill(&ours, (0..5000).map(|n| want(&names(n), HoldMode::Cached))).await;
        assert!(bytes(&ensemble) <= MOST_BYTES);
        let first = want(&names(0), HoldMode::Cached);
        let elsewhere = other.worker_handle();
        let here = ours.worker_handle();
        let theirs = first.clone();
        let mine = first;
        let there = spawn_local(async move {
            elsewhere.acquire(&theirs, LockWaitPlace::Here).await.map(|t| t.mark_upstream_settled())
        });
        sleep(Duration::from_millis(300)).await;
        let waits = spawn_local(async move {
            here.acquire(&mine, LockWaitPlace::Here).await.map(|t| t.mark_upstream_settled())
        });
        sleep(Duration::from_millis(300)).await;
        let tenure = held.swap_remove(0);
        tenure.mark_upstream_settled();
        drop(tenure);
        assert_eq!(there.await.expect("it ends"), Ok(()));
        assert_eq!(waits.await.expect("it ends"), Ok(()));
        drop(held);
    });
}
