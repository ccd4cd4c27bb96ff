//! Another client removes one node of a set while the set is being created. The other nodes are removed, and so do
//! not block the next attempt.

use std::time::Duration;

use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble};
use tokio::{task::spawn_local, time::sleep};

use super::gateway::{
    ClockSpeed, GatewaySettings, HoldMode, LockMode, LockWaitPlace, SimGateway, SimRequest, T, is_lock, key,
};
use crate::simulated_time;

/// The latency of a message in one direction. A node exists for this time before the answer to its create arrives.
const FAR: Duration = Duration::from_millis(5);

fn want(names: &[&str]) -> SimRequest {
    let keys = names.iter().map(|name| key(name)).collect();
    SimRequest { keys, mode: LockMode::Exclusive, keeping: HoldMode::Strict, wait: T }
}

fn locks(ensemble: &SimEnsemble) -> Vec<String> {
    ensemble.paths().into_iter().filter(|path| is_lock(path)).collect()
}

/// Removes the next lock node of the key as soon as it exists.
async fn steal_one(ensemble: &SimEnsemble, name: &str) {
    loop {
        if let Some(made) = locks(ensemble).iter().find(|path| path.contains(&format!("/{name}/"))) {
            return ensemble.delete_as_other_client(made);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// A set that loses a node is created anew, and removes its remaining nodes itself: the test ends long before the
/// janitor would remove them.
#[test]
fn set_losing_node_is_recreated_whole() {
    for stolen in ["a", "b"] {
        simulated_time::run(async move {
            let ensemble = SimEnsemble::start(EnsembleSettings::default());
            let wire = ensemble.wire();
            let dice = SeededRng::new(7);
            let scale = GatewaySettings { clocks: ClockSpeed::Right, sessions: 1 };
            let gateway = SimGateway::start(&ensemble, &wire, scale, &dice);
            gateway.acquire_granted(&want(&["a", "b"])).await.mark_upstream_settled();
            while !locks(&ensemble).is_empty() {
                sleep(FAR).await;
            }
            wire.delay(FAR..FAR * 2);
            let door = gateway.worker_handle();
            let asked =
                spawn_local(async move { door.acquire(&want(&["a", "b"]), LockWaitPlace::Here).await });
            steal_one(&ensemble, stolen).await;
            let tenure = asked.await.expect("no panic").unwrap_or_else(|error| panic!("{stolen}: {error}"));
            let held = locks(&ensemble);
            let maker = |path: &String| path.rsplit('/').next().map(|name| name[..32].to_owned());
            assert_eq!(held.len(), 2, "{stolen}: {held:?}");
            assert_eq!(maker(&held[0]), maker(&held[1]), "{stolen}: {held:?}");
            tenure.mark_upstream_settled();
            drop(tenure);
            sleep(FAR * 10).await;
            assert_eq!(locks(&ensemble), [""; 0], "{stolen}");
            assert!(gateway.stop().await);
        });
    }
}
