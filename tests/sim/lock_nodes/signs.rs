//! The data of lock nodes: that of an exclusive native holder names its gateway, so that requests can be forwarded
//! to it.

use fencegate_policies::plan::{ForeignLockLayout, LockLocation, LockMode};
use fencegate_recipe::attempt::LockAttempt;
use fencegate_zookeeper::session::client::ZkClient;

use super::fixture::T;
use crate::{
    faulty_client::key,
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

/// Of native locks, only the node of an exclusive one names its gateway, so that requests can be forwarded to it.
#[test]
fn only_exclusive_native_lock_names_gateway() {
    let curator =
        LockLocation::Foreign { layout: ForeignLockLayout::CuratorReadWrite, path: "/app/locks/a".into() };
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let live = session.live();
        // Nodes in foreign layouts name the gateway's member node instead, for operators.
        let signature = live.gateway_reference().to_vec();
        let member = live.member.as_bytes().to_vec();
        for (site, mode, says) in [
            (LockLocation::Native, LockMode::Exclusive, signature),
            (LockLocation::Native, LockMode::Shared, Vec::new()),
            (curator.clone(), LockMode::Exclusive, member.clone()),
            (curator, LockMode::Shared, member),
        ] {
            let attempt = LockAttempt::begin(&live, &key("a"), &site, mode)
                .await
                .expect("room")
                .with_gateway_reference();
            let granted = attempt.acquire(&mut WaitingRequest::default()).await.expect("free");
            let (said, _) = live.client.data(&granted.nodes[0]).await.expect("it holds");
            assert_eq!(said, says, "{site:?} {mode:?}");
            attempt.remove_nodes().await;
        }
        drop(live);
        session.end().await;
    });
}
