//! A request that would have to wait for another gateway is forwarded to it. The route comes only from the holder's
//! lock node and from the member node of the session that owns it.

use std::{collections::HashMap, time::Duration};

use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble, SimSession};
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkConnector};
use tokio::{task::spawn_local, time::sleep};

use super::gateway::{
    AcquireError, ClockSpeed, GatewaySettings, GrantGuard, HoldMode, LockMode, LockWaitPlace, SimGateway,
    SimRequest, T, is_lock, key,
};
use crate::{plan::ROOT, simulated_time};

fn want(wait: Duration) -> SimRequest {
    SimRequest { keys: vec![key("a")], mode: LockMode::Exclusive, keeping: HoldMode::SentOn, wait }
}

/// Starts two gateways. The first one holds the key, with a request in flight.
async fn start_two(ensemble: &SimEnsemble) -> (SimGateway, SimGateway, GrantGuard) {
    let scale = GatewaySettings { clocks: ClockSpeed::Right, sessions: 1 };
    let start = |seed| SimGateway::start(ensemble, &ensemble.wire(), scale, &SeededRng::new(seed));
    let holds = start(7);
    let other = start(8);
    // Wait until the second gateway has its session.
    other.acquire_granted(&SimRequest { keys: vec![key("b")], ..want(T) }).await.mark_upstream_settled();
    let tenure = holds.acquire_granted(&want(T)).await;
    (holds, other, tenure)
}

/// A request is forwarded to the gateway that holds the key, whether or not another request waits here before it.
#[test]
fn request_is_forwarded_to_holding_gateway() {
    for waits_before in [false, true] {
        simulated_time::run(async {
            let ensemble = SimEnsemble::start(EnsembleSettings::default());
            let (holds, other, tenure) = start_two(&ensemble).await;
            let door = other.worker_handle();
            let before = spawn_local(async move {
                if waits_before {
                    door.acquire(&want(T * 10), LockWaitPlace::Here)
                        .await
                        .expect("its turn in the end")
                        .mark_upstream_settled();
                }
            });
            sleep(T / 10).await;
            let told = other.worker_handle().acquire(&want(T), LockWaitPlace::Anywhere).await.map(drop);
            let Err(AcquireError::Elsewhere(way)) = told else { panic!("{waits_before}: {told:?}") };
            assert!(holds.is_target_of(&way) && !other.is_target_of(&way), "{waits_before}");
            tenure.mark_upstream_settled();
            drop(tenure);
            before.await.expect("no panic");
            assert!(holds.stop().await && other.stop().await);
        });
    }
}

/// The data of each member node, by its name.
async fn member_data(looker: &SimSession) -> HashMap<String, Vec<u8>> {
    let mut says = HashMap::new();
    for member in looker.children(&members_folder()).await.expect("there") {
        let (data, _) = looker.data(&format!("{}/{member}", members_folder())).await.expect("there");
        says.insert(member, data);
    }
    says
}

fn members_folder() -> String {
    format!("{ROOT}/members")
}

/// Takes the lock of a key for a foreign session, with data `says`. `lock`: the path of an earlier lock node of the
/// key.
async fn take_foreign_lock(stranger: &SimSession, lock: &str, says: &str) {
    let (parent, _) = lock.rsplit_once('/').expect("absolute");
    // The parent may have been removed with its last node. If it exists, the error does not matter.
    drop(stranger.create(parent, b"", NodeCreateMode::Container).await);
    let path = format!("{}0000000000", &lock[..lock.len() - 10]);
    let steps = [MultiOp::Create { path: &path, data: says.as_bytes(), kind: NodeCreateMode::Ephemeral }];
    stranger.commit(&steps).await.expect("it is free");
}

/// A lock node that names a member node of another session, or a path with a slash, leads to no gateway: a request
/// is not forwarded to an address that a foreign client has chosen.
#[test]
fn lock_node_names_own_member_only() {
    for deep in [false, true] {
        simulated_time::run(async {
            let ensemble = SimEnsemble::start(EnsembleSettings::default());
            let (holds, other, tenure) = start_two(&ensemble).await;
            tenure.mark_upstream_settled();
            drop(tenure);
            let of_the_key = |path: &String| is_lock(path) && path.contains("/a/");
            let lock = ensemble.paths().into_iter().find(of_the_key).expect("it is kept");
            let stranger = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
            let mut gone = member_data(&stranger).await;
            assert!(holds.stop().await);
            let left = member_data(&stranger).await.into_keys().next().expect("the other gateway");
            gone.remove(&left);
            let says = match deep {
                false => left,
                true => {
                    let elsewhere = gone.into_values().next().expect("it has an address of its own");
                    let name = format!("gw/x-{:016x}", stranger.id());
                    for (path, data, kind) in [
                        ("gw", &b""[..], NodeCreateMode::Persistent),
                        (&name, &elsewhere, NodeCreateMode::Ephemeral),
                    ] {
                        stranger
                            .create(&format!("{}/{path}", members_folder()), data, kind)
                            .await
                            .expect("new");
                    }
                    name
                }
            };
            take_foreign_lock(&stranger, &lock, &says).await;
            let result = other.worker_handle().acquire(&want(T), LockWaitPlace::Anywhere).await.map(drop);
            assert_eq!(result, Err(AcquireError::Locked), "deep: {deep}");
            assert!(other.stop().await);
        });
    }
}
