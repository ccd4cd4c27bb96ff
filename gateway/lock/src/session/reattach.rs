//! Asks for which session a connection speaks, when it was made anew.

use tracing::debug;

use super::link::{Fault, Kind, Link};

/// After a reconnect: does this connection still speak for the session we think it does? A write to the member node
/// would succeed from any session, and so "prove" one that nobody keeps alive. The owner of a node made now tells.
/// `None`: it could not be told.
pub async fn speaks_for_us(link: &impl Link, member: &str) -> Option<bool> {
    let probe = format!("{member}-probe");
    let mut made = link.create(&probe, b"", Kind::Ephemeral).await;
    if made == Err(Fault::NodeExists) {
        // From a probe before, whose delete was lost. Who made that one says nothing of this connection.
        link.delete(&probe).await.ok()?;
        made = link.create(&probe, b"", Kind::Ephemeral).await;
    }
    if let Err(fault) = link.delete(&probe).await {
        debug!(%fault, "probe left behind until the session ends");
    }
    made.ok().map(|created| created.seen.owner == link.id())
}
