//! If the server refuses a watch, the gateway tries again, so that no held lock stays without a watch.

use std::time::Duration;

use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble};
use tokio::time::{sleep, timeout};

use super::gateway::{ClockSpeed, GatewaySettings, HoldMode, LockMode, SimGateway, SimRequest, is_lock, key};
use crate::simulated_time;

fn want(keeping: HoldMode, name: &str) -> SimRequest {
    SimRequest { keys: vec![key(name)], mode: LockMode::Exclusive, keeping, wait: Duration::from_secs(5) }
}

/// A holder whose watch the server refused still learns that its lock node was removed.
#[test]
fn refused_watch_still_detects_removal() {
    for keeping in [HoldMode::Cached, HoldMode::Strict] {
        simulated_time::run(async {
            let ensemble = SimEnsemble::start(EnsembleSettings::default());
            let wire = ensemble.wire();
            let dice = SeededRng::new(7);
            let scale = GatewaySettings { clocks: ClockSpeed::Right, sessions: 1 };
            let gateway = SimGateway::start(&ensemble, &wire, scale, &dice);
            gateway.acquire_granted(&want(keeping, "before")).await.mark_upstream_settled();
            wire.refuse_watches(2);
            let tenure = gateway.acquire_granted(&want(keeping, "a")).await;
            let (_, permission) = gateway.worker_handle().dispatch(&tenure).expect("a dispatch");
            // By now the server has refused both watches, and the gateway has not tried again yet.
            sleep(Duration::from_millis(900)).await;
            assert!(permission.holds(), "{keeping:?}");
            let held: Vec<_> =
                ensemble.paths().into_iter().filter(|path| is_lock(path) && path.contains("/a/")).collect();
            assert_eq!(held.len(), 1, "{held:?}");
            ensemble.delete_as_other_client(&held[0]);
            let noticed = async {
                while permission.holds() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            assert!(
                timeout(Duration::from_secs(2), noticed).await.is_ok(),
                "{keeping:?}: it goes on writing"
            );
            tenure.mark_upstream_settled();
            drop(tenure);
            assert!(gateway.stop().await);
        });
    }
}
