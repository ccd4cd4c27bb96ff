//! Finds the address of the gateway that holds a key alone, in ZooKeeper.
//!
//! The lock node of a cached tenure names the member node of its gateway, and the member node has the address for its
//! peers. A request that would have to wait may be forwarded there. The address may be out of date, so the receiving
//! gateway checks by itself whether it holds the key.

use fencegate_zookeeper::{
    peer_endpoint::HolderRoute,
    session::{
        active_session::ActiveSession,
        client::{NodeStat, ZkClient, ZkError},
        member::{MemberRecord, gateway_name},
        paths::ZkPaths,
    },
};

/// The result of reading a lock node.
pub(crate) type NodeDataResult = Result<(Vec<u8>, NodeStat), ZkError>;

/// Follows a lock node to its gateway; `None` if that is this process, or has no address for peers.
pub(crate) async fn resolve_holder_route<L: ZkClient>(
    live: &ActiveSession<L>,
    read: NodeDataResult,
) -> Option<HolderRoute> {
    let (says, seen) = read.ok()?;
    let member = std::str::from_utf8(&says).ok()?;
    let gateway = gateway_name(member);
    let path = live.paths.member_path(gateway, seen.owner);
    // The data becomes a part of a path, so it has to name the member node of the lock node's own session.
    if gateway.contains('/') || ZkPaths::member_name(gateway, seen.owner) != member {
        return None;
    }
    let (data, _) = live.client.data(&path).await.ok()?;
    let reach = serde_json::from_slice::<MemberRecord>(&data).ok()?.peer?;
    // Each process has one peer secret, so equal secrets also recognize nodes of an earlier session of this process.
    let ours = live.peer_endpoint.as_ref().is_some_and(|ours| ours.pass == reach.pass);
    (!ours).then(|| HolderRoute {
        gateway: gateway.into(),
        member: member.into(),
        address: reach.address.into(),
        secret: reach.pass,
    })
}
