//! Decides whether a contender for one of several permits may take one now, or which nodes it has to wait for.

use fencegate_policies::permits::{PermitCount, PermitIndex};

use super::{LockQueueLayout, LockQueueNode, parse_permit};

/// The queue position of a contender for one of `N` permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitQueuePosition<'a> {
    /// Fewer than `N` contenders are ahead, so this contender may take one of these permits, which are most likely
    /// free in this order.
    Now(Vec<PermitIndex>),
    /// All contenders ahead hold a permit or may take one. This contender is the next one when any of them leaves.
    Next,
    /// The direct predecessor also waits for a permit. So this contender only watches until the predecessor holds or
    /// leaves.
    Behind(&'a str),
    /// This contender can never hold: the first contender requests another permit count, or the key alone.
    PermitsDiffer,
    /// This contender has no node any more.
    Gone,
}

impl<'a> PermitQueuePosition<'a> {
    /// The position of the node called `own`, among the children of its parent.
    ///
    /// The list may be old, but it was read after the own node was created. So it shows every contender ahead that
    /// still exists, and perhaps some that have gone. An old list therefore delays the contender, and never admits it
    /// too early.
    pub fn compute(permits: PermitCount, children: &'a [String], own: &str) -> Self {
        let line = LockQueueLayout::Permits(permits);
        let Some(ours) = line.parse_contender(own) else { return Self::Gone };
        let mut before: Vec<LockQueueNode<'a>> = Vec::new();
        let mut present = false;
        let mut taken = vec![false; usize::from(permits.count())];
        for name in children {
            if name == own {
                present = true;
            } else if let Some(other) = line.parse_contender(name) {
                // Two nodes with one sequence number count as behind each other, so neither holds.
                before.extend((other.sequence <= ours.sequence).then_some(other));
            } else if let Some(permit) = parse_permit(name) {
                match taken.get_mut(usize::from(permit.number())) {
                    Some(taken) => *taken = true,
                    // This permit comes from a lock with more permits.
                    None => return Self::PermitsDiffer,
                }
            }
        }
        if !present {
            return Self::Gone;
        }
        before.sort_unstable_by_key(|one| one.sequence);
        let like = |one: &LockQueueNode| one.permits == Some(permits);
        match before.first() {
            Some(first) if !like(first) => return Self::PermitsDiffer,
            _ => {}
        }
        // A contender with another permit count than the first one was refused, or is about to be. This contender
        // waits until it leaves.
        if let Some(unlike) = before.iter().rfind(|one| !like(one)) {
            return Self::Behind(unlike.name);
        }
        match before.len().cmp(&taken.len()) {
            std::cmp::Ordering::Less => Self::Now(free_permits(permits, &taken, before.len())),
            std::cmp::Ordering::Equal => Self::Next,
            std::cmp::Ordering::Greater => Self::Behind(before[before.len() - 1].name),
        }
    }
}

/// The free permits, in the order in which to try them. Each contender ahead that has no permit yet will try one, so
/// this contender begins that many permits later.
fn free_permits(permits: PermitCount, taken: &[bool], before: usize) -> Vec<PermitIndex> {
    let mut free: Vec<PermitIndex> =
        permits.iter().filter(|permit| !taken[usize::from(permit.number())]).collect();
    let have = taken.len() - free.len();
    if !free.is_empty() {
        let others = before.saturating_sub(have) % free.len();
        free.rotate_left(others);
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::permit_node_name;
    use fencegate_policies::plan::LockMode;
    use fencegate_process::randomness::{Guid, SystemRandomness};

    fn permits(count: u16) -> PermitCount {
        PermitCount::new(count).expect("within bounds")
    }

    fn contender_name(count: u16, sequence: i64) -> String {
        LockQueueLayout::Permits(permits(count)).node_name(
            Guid::new(&SystemRandomness),
            LockMode::Exclusive,
            sequence,
        )
    }

    fn permit(number: u16) -> PermitIndex {
        PermitIndex::new(number).expect("small")
    }

    fn now_with_permits(numbers: &[u16]) -> PermitQueuePosition<'static> {
        PermitQueuePosition::Now(numbers.iter().copied().map(permit).collect())
    }

    /// The first n contenders may take a permit, the next one waits for any of them, and every later one for its
    /// predecessor.
    #[test]
    fn first_n_contenders_take_permits() {
        let line: Vec<String> = (0..5).map(|number| contender_name(2, number)).collect();
        let seen = |own: usize| PermitQueuePosition::compute(permits(2), &line, &line[own]);
        assert_eq!(
            [seen(0), seen(1)],
            [now_with_permits(&[0, 1]), now_with_permits(&[1, 0])],
            "they do not try the same"
        );
        assert_eq!(seen(2), PermitQueuePosition::Next);
        assert_eq!(
            [seen(3), seen(4)],
            [PermitQueuePosition::Behind(&line[2]), PermitQueuePosition::Behind(&line[3])]
        );
        assert_eq!(
            PermitQueuePosition::compute(permits(2), &line[1..], &line[2]),
            now_with_permits(&[1, 0]),
            "one has left"
        );
        assert_eq!(PermitQueuePosition::compute(permits(2), &line[1..], &line[0]), PermitQueuePosition::Gone);
    }

    #[test]
    fn taken_permit_is_not_tried() {
        let mut nodes: Vec<String> = (0..3).map(|number| contender_name(3, number)).collect();
        nodes.extend([0, 2].map(|number| permit_node_name(permit(number))));
        assert_eq!(PermitQueuePosition::compute(permits(3), &nodes, &nodes[2]), now_with_permits(&[1]));
        nodes.push(permit_node_name(permit(1)));
        assert_eq!(
            PermitQueuePosition::compute(permits(3), &nodes, &nodes[2]),
            now_with_permits(&[]),
            "somebody's place in line is gone"
        );
    }

    /// The first contender decides the permit count; a later contender with another count is refused.
    #[test]
    fn first_contender_sets_permit_count() {
        let nodes = [contender_name(3, 1), contender_name(4, 2), contender_name(3, 3)];
        assert_eq!(
            PermitQueuePosition::compute(permits(4), &nodes, &nodes[1]),
            PermitQueuePosition::PermitsDiffer
        );
        assert_eq!(
            PermitQueuePosition::compute(permits(3), &nodes, &nodes[2]),
            PermitQueuePosition::Behind(&nodes[1]),
            "it is to go"
        );
        assert_eq!(
            PermitQueuePosition::compute(permits(3), &nodes, &nodes[0]),
            now_with_permits(&[0, 1, 2]),
            "who comes later is refused"
        );
        let left_over = [contender_name(3, 9), permit_node_name(permit(3))];
        assert_eq!(
            PermitQueuePosition::compute(permits(3), &left_over, &left_over[0]),
            PermitQueuePosition::PermitsDiffer
        );
    }

    /// A plain lock of the key is incompatible with a semaphore of it, in both directions.
    #[test]
    fn semaphore_conflicts_with_plain_lock() {
        let guid = Guid::new(&SystemRandomness);
        for alone in [
            LockQueueLayout::Native.node_name(guid, LockMode::Exclusive, 1),
            LockQueueLayout::Native.node_name(guid, LockMode::Shared, 1),
            "a-stranger-0000000001".to_owned(),
        ] {
            let nodes = [alone, contender_name(2, 2)];
            assert_eq!(
                PermitQueuePosition::compute(permits(2), &nodes, &nodes[1]),
                PermitQueuePosition::PermitsDiffer,
                "{}",
                nodes[0]
            );
            assert!(!LockQueueLayout::Native.is_semaphore(&nodes));
        }
        let nodes = [contender_name(2, 1), LockQueueLayout::Native.node_name(guid, LockMode::Exclusive, 2)];
        assert!(
            LockQueueLayout::Native.is_semaphore(&nodes)
                && !LockQueueLayout::Native.is_semaphore(&nodes[1..])
        );
        let left_over = [permit_node_name(permit(1)), nodes[1].clone()];
        assert!(LockQueueLayout::Native.is_semaphore(&left_over));
        assert_eq!(LockQueueLayout::Native.sole_holder(&nodes), None, "nobody is sent on to one of several");
    }
}
