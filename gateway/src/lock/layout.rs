//! How lock nodes are named, and which of them stands before which.

use crate::randomness::Guid;

/// A child of a key's parent that stands in its queue: anything to which the server gave a sequence number.
///
/// Ours are called `<guid>-w-<10 digits>`: the GUID is how an attempt finds its node when the reply to the create is
/// lost. A name that ends in a number but is not ours (a later version's, a stranger's) still blocks what comes after
/// it: to pass it would be to guess that it holds nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender<'a> {
    pub name: &'a str,
    pub guid: Option<Guid>,
    pub sequence: u32,
}

/// Marks the nodes of exclusive contenders.
const WRITER: &str = "-w-";

/// The name that an exclusive attempt asks for; the server appends the sequence number.
pub fn requested(guid: Guid) -> String {
    format!("{guid}{WRITER}")
}

/// The name of the first node under a parent that was made in the same transaction.
pub fn first(guid: Guid) -> String {
    format!("{guid}{WRITER}{:010}", 0)
}

impl<'a> Contender<'a> {
    /// `None` for a child without a sequence number.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (prefix, digits) = name.split_at_checked(name.len().checked_sub(10)?)?;
        let sequence = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??;
        Some(Self { name, guid: prefix.strip_suffix(WRITER).and_then(Guid::parse), sequence })
    }
}

/// Where one node stands among its parent's children.
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// Nobody before it: it holds the lock.
    First,
    /// Waits for exactly this one to go; watching only it wakes one waiter per release, not all.
    Behind(&'a str),
    /// It is not there.
    Gone,
}

/// The place of the node called `own`.
pub fn place<'a>(children: &'a [String], own: &str) -> Place<'a> {
    let Some(ours) = Contender::parse(own) else { return Place::Gone };
    let mut present = false;
    let mut before: Option<Contender<'a>> = None;
    for other in children.iter().filter_map(|name| Contender::parse(name)) {
        if other.name == own {
            present = true;
        } else if other.sequence <= ours.sequence
            && before.as_ref().is_none_or(|b| b.sequence < other.sequence)
        {
            // Equal numbers happen when the server's counter sticks at 2^31 - 1: then nobody may hold.
            before = Some(other);
        }
    }
    match (present, before) {
        (false, _) => Place::Gone,
        (true, None) => Place::First,
        (true, Some(before)) => Place::Behind(before.name),
    }
}

/// The nodes that an attempt made, lowest first. More than one when a create was repeated below us.
pub fn made_by(children: &[String], guid: Guid) -> Vec<&str> {
    let mut own: Vec<_> = children
        .iter()
        .filter_map(|name| Contender::parse(name))
        .filter(|one| one.guid == Some(guid))
        .collect();
    own.sort_by_key(|one| one.sequence);
    own.into_iter().map(|one| one.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::randomness::SystemRandomness;

    fn node(sequence: u32) -> String {
        format!("{}{sequence:010}", requested(Guid::new(&SystemRandomness)))
    }

    #[test]
    fn a_node_waits_for_the_one_directly_before_it() {
        let nodes = [node(12), node(3), node(7)];
        assert_eq!(place(&nodes, &nodes[1]), Place::First);
        assert_eq!(place(&nodes, &nodes[2]), Place::Behind(&nodes[1]));
        assert_eq!(place(&nodes, &nodes[0]), Place::Behind(&nodes[2]));
        assert_eq!(place(&nodes, &node(1)), Place::Gone);
    }

    #[test]
    fn order_is_by_number_not_by_name() {
        let low = format!("f{}", &node(1)[1..]);
        let high = format!("0{}", &node(2)[1..]);
        let nodes = [low.clone(), high.clone()];
        assert_eq!(place(&nodes, &high), Place::Behind(&low));
    }

    #[test]
    fn equal_numbers_block_each_other() {
        let nodes = [node(i32::MAX as u32), node(i32::MAX as u32)];
        assert_eq!(place(&nodes, &nodes[0]), Place::Behind(&nodes[1]));
        assert_eq!(place(&nodes, &nodes[1]), Place::Behind(&nodes[0]));
    }

    #[test]
    fn a_stranger_with_a_number_blocks_and_one_without_does_not() {
        let own = node(5);
        let plain = ["readme".to_owned(), own.clone()];
        assert_eq!(place(&plain, &own), Place::First);
        for stranger in ["_c_1-lock-0000000001", "x-r-0000000001", "\u{e9}0000000001"] {
            let queue = [stranger.to_owned(), own.clone()];
            assert_eq!(place(&queue, &own), Place::Behind(stranger));
        }
    }

    #[test]
    fn an_attempt_finds_its_nodes_lowest_first() {
        let guid = Guid::new(&SystemRandomness);
        let nodes = [format!("{guid}-w-0000000009"), node(1), format!("{guid}-w-0000000004")];
        assert_eq!(made_by(&nodes, guid), [nodes[2].as_str(), nodes[0].as_str()]);
    }
}
