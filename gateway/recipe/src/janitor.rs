//! Removes nodes that are not needed any more: retained parents of keys that do not come back, and lock nodes of this
//! session that belong to no attempt. No such lock node should ever exist.

use std::{convert::Infallible, time::Duration};

use fencegate_process::randomness::Guid;
use fencegate_zookeeper::session::{
    active_session::ActiveSession,
    client::{MultiError, MultiOp, ZkClient, ZkError},
    retained_parents::RETENTION,
};
use futures_util::future::join_all;
use tracing::{debug, warn};

use super::{layout::attempt_guid, lock_node::UNWRITTEN_VERSION, node_data};

/// Removes unused parents for as long as it is polled.
pub async fn remove_unused_parents<L: ZkClient>(live: &ActiveSession<L>) -> Infallible {
    /// Parents that are removed in one transaction.
    const AT_ONCE: usize = 64;
    loop {
        tokio::time::sleep(RETENTION / 2).await;
        for parents in live.registry.parents.kept.take_expired_parents(live.clock.now()).chunks(AT_ONCE) {
            let steps: Vec<_> = parents.iter().map(|parent| delete_parent_op(parent)).collect();
            // Recorded before the answer: later requests of this session are ordered behind this one.
            parents.iter().for_each(|parent| live.registry.parents.mark_absent(parent));
            if let Err(MultiError { step: Some(_), .. }) = live.client.commit(&steps).await {
                // Another session uses one of the parents, or has removed it, so the whole transaction failed. Each
                // parent is tried by itself.
                drop(join_all(steps.iter().map(|step| live.client.commit(std::slice::from_ref(step)))).await);
            }
        }
    }
}

/// The server refuses this if any node is below the parent, or if a record was written there.
fn delete_parent_op(path: &str) -> MultiOp<'_> {
    MultiOp::Delete { path, version: Some(UNWRITTEN_VERSION) }
}

/// Removes lock nodes without an owner once in each `period`, for as long as it is polled.
pub async fn run_ownerless_node_sweeps<L: ZkClient>(live: &ActiveSession<L>, period: Duration) -> Infallible {
    loop {
        tokio::time::sleep(period).await;
        sweep_ownerless_nodes(live).await;
    }
}

/// Lists the ephemeral nodes of the session, and checks each one against the registry when it is about to be deleted.
/// An attempt is registered before its create is sent, so a listed node without an entry has no owner any more.
async fn sweep_ownerless_nodes<L: ZkClient>(live: &ActiveSession<L>) {
    // Listed from `/`, because locks of other programs can lie anywhere.
    let nodes = match live.client.ephemerals("/").await {
        Ok(nodes) => nodes,
        Err(fault) => return debug!(%fault, "nodes of this session not listed"),
    };
    for path in nodes {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_forgotten = |guid: Guid| !live.registry.contains(&guid);
        let removed = match attempt_guid(name) {
            Some(guid) if is_forgotten(guid) => live.client.delete(&path).await,
            Some(_) => continue,
            // An exclusive node has a name without a GUID; the attempt's GUID is in its data.
            None => match live.client.data(&path).await {
                Ok((says, seen))
                    if seen.owner == live.client.id()
                        && node_data::parse_attempt(&says).is_some_and(is_forgotten) =>
                {
                    let steps = [MultiOp::Delete { path: &path, version: Some(seen.version) }];
                    live.client.commit(&steps).await.map(drop).map_err(|failed| failed.fault)
                }
                Ok(_) | Err(_) => continue,
            },
        };
        match removed {
            Ok(()) => {
                warn!(path = live.paths.redacted_path(&path), "a lock node without an owner was removed")
            }
            // The owner of the node has removed it after the server made the list.
            Err(ZkError::NoNode) => {}
            Err(fault) => debug!(%fault, path = live.paths.redacted_path(&path), "left for the next sweep"),
        }
    }
}
