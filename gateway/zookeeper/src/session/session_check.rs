//! Checks whether a new connection still belongs to the session.

use tracing::debug;

use super::{
    client::{NodeCreateMode, ZkClient, ZkError},
    member::reconnect_probe_name,
};

/// Whether the connection after a reconnect still belongs to the session. A write to the member node would succeed from
/// any session, and so "prove" a session that is not kept alive any more. So this creates a new ephemeral node, and
/// compares its owner. `None`: the owner could not be determined.
pub async fn check_same_session(link: &impl ZkClient, member: &str) -> Option<bool> {
    let probe = reconnect_probe_name(member);
    let mut made = link.create(&probe, b"", NodeCreateMode::Ephemeral).await;
    if made == Err(ZkError::NodeExists) {
        // The node is left from an earlier probe. Its owner does not identify this connection, so a new one is created.
        link.delete(&probe).await.ok()?;
        made = link.create(&probe, b"", NodeCreateMode::Ephemeral).await;
    }
    if let Err(fault) = link.delete(&probe).await {
        debug!(%fault, "probe left behind until the session ends");
    }
    made.ok().map(|created| created.stat.owner == link.id())
}
