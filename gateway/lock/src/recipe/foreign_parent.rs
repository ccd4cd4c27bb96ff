//! Makes the parent of a lock that other programs have, as these programs make it, where none of them has yet.
//!
//! Nobody here removes one. Curator's parents are containers, which the server removes when they have been empty for a
//! while, and Curator asks for its parent again then. kazoo's are persistent: its `Lock` makes sure of its parent once,
//! and fails ever after if that is gone. Those of an exclusive node are, too: a program that makes nothing but the node
//! expects them to be there.

use super::layout::Line;
use crate::session::{
    link::{Fault, Kind, Link},
    live::Live,
};

/// As the programs make theirs whose nodes stand in this line.
pub(super) fn kind(line: Line) -> Kind {
    match line {
        Line::CuratorMutex | Line::CuratorReadWrite => Kind::Container,
        Line::Native | Line::Permits(_) | Line::Kazoo => Kind::Persistent,
    }
}

/// Who may do what with them is taken from the node that they are made below: ZooKeeper hands nothing down, and what keeps
/// strangers out of our own nodes would keep the other programs out of theirs.
pub(super) async fn make<L: Link>(live: &Live<L>, parent: &str, kind: Kind) -> Result<(), Fault> {
    let ends = parent.match_indices('/').map(|(at, _)| at).skip(1).chain([parent.len()]);
    let levels: Vec<&str> = ends.map(|end| &parent[..end]).collect();
    // From the bottom up: who may not write what is above is not told that it is there.
    let mut there = levels.len();
    while there > 0 {
        match live.link.seen(levels[there - 1]).await {
            Ok(Some(_)) => break,
            Ok(None) => there -= 1,
            // The next round finds out.
            Err(Fault::Ambiguous(_)) => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
    let mut above = if there == 0 { "/" } else { levels[there - 1] };
    for level in &levels[there..] {
        match live.link.create_like(level, above, kind).await {
            Ok(()) | Err(Fault::NodeExists | Fault::Ambiguous(_)) => above = level,
            // Removed again meanwhile; the next round finds out.
            Err(Fault::NoNode) => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
