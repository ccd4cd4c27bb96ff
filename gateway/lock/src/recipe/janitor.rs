//! Removes lock nodes of our session that belong to no attempt; there should never be one.

use std::{convert::Infallible, time::Duration};

use fencegate_process::randomness::Guid;
use tracing::{debug, warn};

use super::{layout::guid_of, saying};
use crate::session::{
    link::{Fault, Link, Step},
    live::Live,
};

/// Sweeps for as long as it is polled.
pub async fn sweep_every<L: Link>(live: &Live<L>, period: Duration) -> Infallible {
    loop {
        tokio::time::sleep(period).await;
        sweep(live).await;
    }
}

/// Lists the nodes, and looks each one up in the registry when it is about to be deleted. An attempt is registered
/// before its create is sent, so a listed node without an entry has no owner any more.
async fn sweep<L: Link>(live: &Live<L>) {
    // Listed from `/`, because locks of other programs can lie anywhere.
    let nodes = match live.link.ephemerals("/").await {
        Ok(nodes) => nodes,
        Err(fault) => return debug!(%fault, "nodes of this session not listed"),
    };
    for path in nodes {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_forgotten = |guid: Guid| !live.registry.contains(&guid);
        let removed = match guid_of(name) {
            Some(guid) if is_forgotten(guid) => live.link.delete(&path).await,
            Some(_) => continue,
            // An exclusive node has a name without a GUID; our GUID is in its data.
            None => match live.link.data(&path).await {
                Ok((says, seen))
                    if seen.owner == live.link.id() && saying::attempt(&says).is_some_and(is_forgotten) =>
                {
                    let steps = [Step::Delete { path: &path, version: Some(seen.version) }];
                    live.link.commit(&steps).await.map(drop).map_err(|failed| failed.fault)
                }
                Ok(_) | Err(_) => continue,
            },
        };
        match removed {
            Ok(()) => warn!(path = live.paths.shown(&path), "lock node without an owner removed"),
            // Its owner has removed it since the server made the list.
            Err(Fault::NoNode) => {}
            Err(fault) => debug!(%fault, path = live.paths.shown(&path), "left for the next sweep"),
        }
    }
}
