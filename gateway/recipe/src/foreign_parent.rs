//! Creates the parent of a lock that is shared with other programs, in the same way as those programs do.
//!
//! Such a parent is never removed here. Curator's parents are containers: the server removes them when they have been
//! empty for a while, and Curator creates them anew. kazoo's are persistent: its `Lock` ensures its parent once, and
//! fails for good if that goes later. The parent of an exclusive node is persistent, too, because a program that
//! creates only the node expects the parent to exist.

use fencegate_zookeeper::session::{
    active_session::ActiveSession,
    client::{NodeCreateMode, ZkClient, ZkError},
};

use super::layout::LockQueueLayout;

/// The kind of parent that the programs of this layout create.
pub(super) fn parent_kind(line: LockQueueLayout) -> NodeCreateMode {
    match line {
        LockQueueLayout::CuratorMutex | LockQueueLayout::CuratorReadWrite => NodeCreateMode::Container,
        LockQueueLayout::Native | LockQueueLayout::Permits(_) | LockQueueLayout::Kazoo => {
            NodeCreateMode::Persistent
        }
    }
}

/// Creates all nodes that are missing on the path `parent`. Each gets the ACL of the node above it: ZooKeeper inherits
/// no ACLs, and the ACL of the gateways' own nodes would keep the other programs out.
pub(super) async fn create_missing_ancestors<L: ZkClient>(
    live: &ActiveSession<L>,
    parent: &str,
    kind: NodeCreateMode,
) -> Result<(), ZkError> {
    let ends = parent.match_indices('/').map(|(at, _)| at).skip(1).chain([parent.len()]);
    let levels: Vec<&str> = ends.map(|end| &parent[..end]).collect();
    // Searches for the lowest level that exists, and creates only those below it: a create of an upper level may be
    // denied although that level exists.
    let mut there = levels.len();
    while there > 0 {
        match live.client.stat(levels[there - 1]).await {
            Ok(Some(_)) => break,
            Ok(None) => there -= 1,
            // The answer was lost. The next round of the caller reads which levels exist.
            Err(ZkError::Ambiguous(_)) => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
    let mut above = if there == 0 { "/" } else { levels[there - 1] };
    for level in &levels[there..] {
        match live.client.create_with_acl_of(level, above, kind).await {
            Ok(()) | Err(ZkError::NodeExists | ZkError::Ambiguous(_)) => above = level,
            // The level above was removed meanwhile; the next round of the caller retries.
            Err(ZkError::NoNode) => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
