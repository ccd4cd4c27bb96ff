//! A parent node disappears in the rhythm in which a set's attempts are repeated. The set gets all of its nodes
//! nevertheless.

use std::time::Duration;

use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble};
use tokio::time::Instant;

use super::gateway::{
    ClockSpeed, GatewaySettings, HoldMode, LockMode, LockWaitPlace, SimGateway, SimRequest, is_lock, key,
};
use crate::simulated_time;

/// The latency of a message in one direction.
const LATENCY: Duration = Duration::from_millis(5);

fn want(names: &[&str]) -> SimRequest {
    let keys = names.iter().map(|name| key(name)).collect();
    SimRequest { keys, mode: LockMode::Exclusive, keeping: HoldMode::Strict, wait: Duration::from_secs(5) }
}

/// A set is granted in the end although the parent of one key disappears once in every round trip. Without
/// variation, attempts that take one round trip each would all fail.
#[test]
fn set_retries_vary_their_rhythm() {
    for seed in 0..8 {
        simulated_time::run(async {
            let ensemble = SimEnsemble::start(EnsembleSettings {
                latency: LATENCY..LATENCY,
                ..EnsembleSettings::default()
            });
            let scale = GatewaySettings { clocks: ClockSpeed::Right, sessions: 1 };
            let gateway = SimGateway::start(&ensemble, &ensemble.wire(), scale, &SeededRng::new(seed));
            let tenure = gateway.acquire_granted(&want(&["a"])).await;
            let paths = ensemble.paths();
            let node = paths.iter().find(|path| is_lock(path)).expect("held");
            let (parent, _) = node.rsplit_once('/').expect("below its parent");
            ensemble.flap_parent(parent, LATENCY * 2);
            tenure.mark_upstream_settled();
            drop(tenure);

            let began = Instant::now();
            let set = gateway
                .worker_handle()
                .acquire(&want(&["a", "b"]), LockWaitPlace::Here)
                .await
                .expect("granted");
            assert!(began.elapsed() > LATENCY * 2 * 4, "not exercised: after {:?}", began.elapsed());
            assert_eq!(ensemble.paths().iter().filter(|path| is_lock(path)).count(), 2);
            set.mark_upstream_settled();
            drop(set);
            assert!(gateway.stop().await);
            let left: Vec<_> = ensemble.paths().into_iter().filter(|path| is_lock(path)).collect();
            assert!(left.is_empty(), "{left:?}");
        });
    }
}
