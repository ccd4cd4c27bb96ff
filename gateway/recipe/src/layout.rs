//! The order of lock nodes in a queue.

pub mod node_names;
pub mod queue_position;

pub use node_names::{LockQueueLayout, LockQueueNode, attempt_guid, parse_permit, permit_node_name};
pub use queue_position::PermitQueuePosition;

use fencegate_policies::plan::LockMode;

use fencegate_process::randomness::Guid;

/// The last sequence number with which a node may hold below a parent of other programs. Gateways cannot replace such a
/// parent, so its numbers cannot begin anew. At 2^31 - 1 the server's counter sticks: several nodes get one number, and
/// the other programs take each of them for the first.
const MAX_FOREIGN_SEQUENCE: u32 = (1 << 31) - (1 << 20);

impl LockQueueNode<'_> {
    /// Whether both can hold the lock at the same time.
    fn is_compatible_with(&self, other: &Self) -> bool {
        self.mode == LockMode::Shared && other.mode == LockMode::Shared
    }
}

/// The rank of one node among its parent's children.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueRank<'a> {
    /// The node waits for no other node: it holds the lock.
    First,
    /// The node waits for exactly this node to go. Each waiter watches only one node, so a release wakes one waiter and
    /// not all.
    Behind(&'a str),
    /// The node does not exist.
    Gone,
}

impl LockQueueLayout {
    /// The last sequence number with which a node may hold; `limit`: that number in the native layout.
    pub(crate) fn last_usable_sequence(self, limit: u32) -> u32 {
        if self.is_native() { limit } else { MAX_FOREIGN_SEQUENCE }
    }

    /// The rank of the node called `own`. A writer waits for its direct predecessor, a reader for the nearest writer
    /// before it: readers that come later never overtake a waiting writer.
    pub fn queue_rank<'a>(self, children: &'a [String], own: &str) -> QueueRank<'a> {
        let Some(ours) = self.parse_contender(own) else { return QueueRank::Gone };
        let mut present = false;
        let mut before: Option<LockQueueNode<'a>> = None;
        for other in children.iter().filter_map(|name| self.parse_contender(name)) {
            if other.name == own {
                present = true;
            } else if other.sequence <= ours.sequence
            // Two nodes have equal numbers when the server's counter sticks at 2^31 - 1. Then neither may hold.
            && !ours.is_compatible_with(&other)
            && before.as_ref().is_none_or(|b| b.sequence < other.sequence)
            {
                before = Some(other);
            }
        }
        match (present, before) {
            (false, _) => QueueRank::Gone,
            (true, None) => QueueRank::First,
            (true, Some(before)) => QueueRank::Behind(before.name),
        }
    }

    /// The first node, if it holds alone and may be a gateway's; `None` if readers hold together, another program
    /// holds, or there is no holder.
    pub(crate) fn sole_holder(self, children: &[String]) -> Option<&str> {
        if self != Self::Native {
            return None;
        }
        let lowest = children
            .iter()
            .filter_map(|name| self.parse_contender(name))
            .min_by_key(|contender| contender.sequence)?;
        let writes = lowest.mode == LockMode::Exclusive && lowest.permits.is_none();
        (writes && lowest.guid.is_some()).then_some(lowest.name)
    }

    /// How many nodes are ahead of the node called `own`.
    pub fn nodes_ahead(self, children: &[String], own: &str) -> usize {
        let Some(ours) = self.parse_contender(own) else { return 0 };
        let others = children.iter().filter_map(|name| self.parse_contender(name));
        others.filter(|other| other.name != own && other.sequence <= ours.sequence).count()
    }

    /// Whether there is another contender that cannot hold together with the node called `own`.
    pub fn is_contended(self, children: &[String], own: &str) -> bool {
        let Some(ours) = self.parse_contender(own) else { return false };
        children
            .iter()
            .filter_map(|name| self.parse_contender(name))
            .any(|other| other.name != own && !ours.is_compatible_with(&other))
    }

    /// Whether all other contenders are exclusive lock nodes of gateways. Such a contender may be in the queue only to
    /// find the gateway that holds, to which its request is then forwarded.
    pub fn has_only_own_writers(self, children: &[String], own: &str) -> bool {
        let may_look = |other: LockQueueNode| {
            other.mode == LockMode::Exclusive && other.permits.is_none() && other.guid.is_some()
        };
        self == Self::Native
            && children
                .iter()
                .filter_map(|name| self.parse_contender(name))
                .all(|other| other.name == own || may_look(other))
    }

    /// Whether the key is in use with permits: the first contender requests one, or one is taken. Then no contender may
    /// queue here for the key alone.
    pub(crate) fn is_semaphore(self, children: &[String]) -> bool {
        let first = children
            .iter()
            .filter_map(|name| self.parse_contender(name))
            .min_by_key(|contender| contender.sequence);
        self == Self::Native
            && (first.is_some_and(|first| first.permits.is_some())
                || children.iter().any(|name| parse_permit(name).is_some()))
    }

    /// The nodes that an attempt created, lowest first. There can be more than one, because the client library may
    /// repeat a create.
    pub fn nodes_with_guid(self, children: &[String], guid: Guid) -> Vec<&str> {
        let mut own: Vec<_> = children
            .iter()
            .filter_map(|name| self.parse_contender(name))
            .filter(|one| one.guid == Some(guid))
            .collect();
        own.sort_by_key(|one| one.sequence);
        own.into_iter().map(|one| one.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LockQueueLayout = LockQueueLayout::Native;

    use fencegate_process::randomness::SystemRandomness;

    fn writer_node_name(sequence: u32) -> String {
        format!("{}{sequence:010}", LINE.requested_name(Guid::new(&SystemRandomness), LockMode::Exclusive))
    }

    fn reader_node_name(sequence: u32) -> String {
        format!("{}{sequence:010}", LINE.requested_name(Guid::new(&SystemRandomness), LockMode::Shared))
    }

    /// Readers hold together; a reader behind a waiting writer waits for that writer.
    #[test]
    fn readers_share_and_never_overtake_writer() {
        let nodes = [
            reader_node_name(1),
            reader_node_name(2),
            writer_node_name(3),
            reader_node_name(4),
            reader_node_name(5),
        ];
        assert_eq!(LINE.queue_rank(&nodes, &nodes[1]), QueueRank::First);
        assert_eq!(LINE.queue_rank(&nodes, &nodes[2]), QueueRank::Behind(&nodes[1]));
        assert_eq!(LINE.queue_rank(&nodes, &nodes[3]), QueueRank::Behind(&nodes[2]));
        assert_eq!(LINE.queue_rank(&nodes, &nodes[4]), QueueRank::Behind(&nodes[2]));
    }

    /// A lock is contended only by nodes that cannot hold together with the contender's own node.
    #[test]
    fn contention_counts_only_conflicting_nodes() {
        let readers = [reader_node_name(1), reader_node_name(2)];
        assert!(!LINE.is_contended(&readers, &readers[0]));
        let mixed = [reader_node_name(1), writer_node_name(2)];
        assert!(LINE.is_contended(&mixed, &mixed[0]) && LINE.is_contended(&mixed, &mixed[1]));
        assert!(!LINE.is_contended(&mixed[1..], &mixed[1]));
        assert!(
            LINE.has_only_own_writers(&[writer_node_name(1), writer_node_name(2)], "")
                && !LINE.has_only_own_writers(&mixed, &mixed[1])
        );
    }

    /// The sole holder is the lowest node if it is a writer of a gateway; a reader or a foreign node in front leaves
    /// none.
    #[test]
    fn sole_holder_is_lowest_own_writer() {
        let nodes = [writer_node_name(7), reader_node_name(9), writer_node_name(3)];
        assert_eq!(LINE.sole_holder(&nodes), Some(nodes[2].as_str()));
        assert_eq!(LINE.sole_holder(&[reader_node_name(1), writer_node_name(2)]), None);
        assert_eq!(LINE.sole_holder(&["_c_1-lock-0000000001".to_owned(), writer_node_name(2)]), None);
        assert_eq!(LINE.sole_holder(&[]), None);
    }

    #[test]
    fn node_waits_for_direct_predecessor() {
        let nodes = [writer_node_name(12), writer_node_name(3), writer_node_name(7)];
        assert_eq!(LINE.queue_rank(&nodes, &nodes[1]), QueueRank::First);
        assert_eq!(LINE.queue_rank(&nodes, &nodes[2]), QueueRank::Behind(&nodes[1]));
        assert_eq!(LINE.queue_rank(&nodes, &nodes[0]), QueueRank::Behind(&nodes[2]));
        assert_eq!(LINE.queue_rank(&nodes, &writer_node_name(1)), QueueRank::Gone);
        let before = |own: &String| LINE.nodes_ahead(&nodes, own);
        assert_eq!([before(&nodes[1]), before(&nodes[2]), before(&nodes[0])], [0, 1, 2]);
        assert_eq!(LINE.nodes_ahead(&nodes, "no number"), 0);
    }

    #[test]
    fn rank_follows_sequence_not_name() {
        let low = format!("f{}", &writer_node_name(1)[1..]);
        let high = format!("0{}", &writer_node_name(2)[1..]);
        let nodes = [low.clone(), high.clone()];
        assert_eq!(LINE.queue_rank(&nodes, &high), QueueRank::Behind(&low));
    }

    #[test]
    fn equal_sequences_block_each_other() {
        let nodes = [writer_node_name(i32::MAX as u32), writer_node_name(i32::MAX as u32)];
        assert_eq!(LINE.queue_rank(&nodes, &nodes[0]), QueueRank::Behind(&nodes[1]));
        assert_eq!(LINE.queue_rank(&nodes, &nodes[1]), QueueRank::Behind(&nodes[0]));
    }

    /// A foreign node with a sequence number blocks the nodes behind it; a node without a number blocks none.
    #[test]
    fn foreign_node_blocks_if_numbered() {
        let own = writer_node_name(5);
        let plain = ["readme".to_owned(), own.clone()];
        assert_eq!(LINE.queue_rank(&plain, &own), QueueRank::First);
        for stranger in ["_c_1-lock-0000000001", "x-s-0000000001", "\u{e9}0000000001"] {
            let queue = [stranger.to_owned(), own.clone()];
            assert_eq!(LINE.queue_rank(&queue, &own), QueueRank::Behind(stranger));
        }
    }

    #[test]
    fn attempt_nodes_are_sorted_by_sequence() {
        let guid = Guid::new(&SystemRandomness);
        let ours = |sequence| LINE.node_name(guid, LockMode::Exclusive, sequence);
        let nodes = [ours(9), writer_node_name(1), ours(4)];
        assert_eq!(LINE.nodes_with_guid(&nodes, guid), [nodes[2].as_str(), nodes[0].as_str()]);
    }

    /// Curator's reader waits for the first writer, and a gateway's reader for the nearest writer before it; both hold
    /// when the last writer before them has gone. A reader that a writer of Curator created beside its own lock has the
    /// writer's number.
    #[test]
    fn foreign_readers_share_and_writers_wait() {
        let guid = Guid::new(&SystemRandomness);
        for line in [LockQueueLayout::CuratorReadWrite, LockQueueLayout::Kazoo] {
            let theirs =
                |mode: LockMode, sequence| line.node_name(Guid::new(&SystemRandomness), mode, sequence);
            let reader = theirs(LockMode::Shared, 1);
            let writer = theirs(LockMode::Exclusive, 3);
            let own = line.node_name(guid, LockMode::Shared, 2);
            let after = line.node_name(guid, LockMode::Shared, 4);
            let nodes = [reader.clone(), own.clone(), writer.clone(), after.clone()];
            assert_eq!(line.queue_rank(&nodes, &own), QueueRank::First);
            assert_eq!(line.queue_rank(&nodes, &writer), QueueRank::Behind(&own));
            assert_eq!(line.queue_rank(&nodes, &after), QueueRank::Behind(&writer));
            assert!(line.is_contended(&nodes, &own) && !line.is_contended(&nodes[..2], &own));
            let beside =
                [theirs(LockMode::Shared, 3), writer.clone(), line.node_name(guid, LockMode::Exclusive, 4)];
            assert_eq!(line.queue_rank(&beside[..1], &beside[2]), QueueRank::Gone);
            assert!(matches!(line.queue_rank(&beside, &beside[2]), QueueRank::Behind(_)));
            let downgraded = [beside[0].clone(), beside[2].clone()];
            assert_eq!(line.queue_rank(&downgraded, &beside[2]), QueueRank::Behind(&beside[0]));
        }
    }

    /// In the layouts of Curator and kazoo there is no sole holder to forward to, and any two nodes contend.
    #[test]
    fn foreign_layout_has_no_sole_holder() {
        let guid = Guid::new(&SystemRandomness);
        for line in [LockQueueLayout::CuratorMutex, LockQueueLayout::CuratorReadWrite, LockQueueLayout::Kazoo]
        {
            let nodes =
                [line.node_name(guid, LockMode::Exclusive, 1), line.node_name(guid, LockMode::Exclusive, 2)];
            assert_eq!(line.sole_holder(&nodes), None);
            assert!(line.is_contended(&nodes, &nodes[0]) && !line.has_only_own_writers(&nodes, &nodes[0]));
        }
    }
}
