//! How lock nodes are named, and which of them stands before which.

use fencegate_policies::plan::Mode;

use fencegate_process::randomness::Guid;

/// A child of a key's parent that stands in its queue: anything to which the server gave a sequence number.
///
/// Ours are called `<guid>-w-<10 digits>`, or `-r-` for shared access: the GUID is how an attempt finds its node when
/// the reply to the create is lost. A name that ends in a number but is not ours (a later version's, a stranger's)
/// counts as exclusive and blocks what comes after it: to pass it would be to guess that it holds nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender<'a> {
    pub name: &'a str,
    pub guid: Option<Guid>,
    pub mode: Mode,
    pub sequence: u32,
}

const WRITER: &str = "-w-";
const READER: &str = "-r-";

/// What the name of a node of ours has between its GUID and its number.
pub fn mark(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => WRITER,
        Mode::Shared => READER,
    }
}

/// The name that an attempt asks for; the server appends the sequence number.
pub fn requested(guid: Guid, mode: Mode) -> String {
    format!("{guid}{}", mark(mode))
}

/// The name that comes of it when the server appends this number: 0 for the first node under a parent.
pub fn numbered(guid: Guid, mode: Mode, sequence: i64) -> String {
    format!("{}{sequence:010}", requested(guid, mode))
}

/// Bytes of such a name behind its parent's path, with the slash between them.
pub const NAME_BYTES: usize = 46;

impl<'a> Contender<'a> {
    /// `None` for a child without a sequence number.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (prefix, digits) = name.split_at_checked(name.len().checked_sub(10)?)?;
        let sequence = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??;
        let ours = |mode| prefix.strip_suffix(mark(mode)).and_then(Guid::parse);
        let (guid, mode) = match (ours(Mode::Exclusive), ours(Mode::Shared)) {
            (None, Some(guid)) => (Some(guid), Mode::Shared),
            (guid, _) => (guid, Mode::Exclusive),
        };
        Some(Self { name, guid, mode, sequence })
    }

    /// Two that can hold the lock at the same time.
    fn agrees_with(&self, other: &Self) -> bool {
        self.mode == Mode::Shared && other.mode == Mode::Shared
    }
}

/// Where one node stands among its parent's children.
#[derive(Debug, PartialEq, Eq)]
pub enum Rank<'a> {
    /// Nobody before it that it has to wait for: it holds the lock.
    First,
    /// Waits for exactly this one to go; watching only it wakes one waiter per release, not all.
    Behind(&'a str),
    /// It is not there.
    Gone,
}

/// The rank of the node called `own`. A writer waits for whoever is directly before it, a reader for the nearest
/// writer before it: readers that come later never overtake a waiting writer.
pub fn rank<'a>(children: &'a [String], own: &str) -> Rank<'a> {
    let Some(ours) = Contender::parse(own) else { return Rank::Gone };
    let mut present = false;
    let mut before: Option<Contender<'a>> = None;
    for other in children.iter().filter_map(|name| Contender::parse(name)) {
        if other.name == own {
            present = true;
        } else if other.sequence <= ours.sequence
            // Equal numbers happen when the server's counter sticks at 2^31 - 1: then nobody may hold.
            && !ours.agrees_with(&other)
            && before.as_ref().is_none_or(|b| b.sequence < other.sequence)
        {
            before = Some(other);
        }
    }
    match (present, before) {
        (false, _) => Rank::Gone,
        (true, None) => Rank::First,
        (true, Some(before)) => Rank::Behind(before.name),
    }
}

/// The node that holds alone; `None` where readers hold together, where a stranger does, or where nobody is.
pub fn alone(children: &[String]) -> Option<&str> {
    let lowest = children
        .iter()
        .filter_map(|name| Contender::parse(name))
        .min_by_key(|contender| contender.sequence)?;
    (lowest.mode == Mode::Exclusive && lowest.guid.is_some()).then_some(lowest.name)
}

/// Does anybody wait for the node called `own` to go, or could not hold beside it?
pub fn is_contended(children: &[String], own: &str) -> bool {
    let Some(ours) = Contender::parse(own) else { return false };
    children
        .iter()
        .filter_map(|name| Contender::parse(name))
        .any(|other| other.name != own && !ours.agrees_with(&other))
}

/// Is everybody who waits beside the node called `own` a writer of ours? Only they ever wait to learn who holds.
pub fn may_only_look(children: &[String], own: &str) -> bool {
    children
        .iter()
        .filter_map(|name| Contender::parse(name))
        .all(|other| other.name == own || (other.mode == Mode::Exclusive && other.guid.is_some()))
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
    use fencegate_process::randomness::SystemRandomness;

    fn writer(sequence: u32) -> String {
        format!("{}{sequence:010}", requested(Guid::new(&SystemRandomness), Mode::Exclusive))
    }

    fn reader(sequence: u32) -> String {
        format!("{}{sequence:010}", requested(Guid::new(&SystemRandomness), Mode::Shared))
    }

    #[test]
    fn readers_hold_together_and_a_writer_between_them_is_not_overtaken() {
        let nodes = [reader(1), reader(2), writer(3), reader(4), reader(5)];
        assert_eq!(rank(&nodes, &nodes[1]), Rank::First);
        assert_eq!(rank(&nodes, &nodes[2]), Rank::Behind(&nodes[1]));
        assert_eq!(rank(&nodes, &nodes[3]), Rank::Behind(&nodes[2]));
        assert_eq!(rank(&nodes, &nodes[4]), Rank::Behind(&nodes[2]));
    }

    #[test]
    fn contention_is_who_cannot_hold_beside_us() {
        let readers = [reader(1), reader(2)];
        assert!(!is_contended(&readers, &readers[0]));
        let mixed = [reader(1), writer(2)];
        assert!(is_contended(&mixed, &mixed[0]) && is_contended(&mixed, &mixed[1]));
        assert!(!is_contended(&mixed[1..], &mixed[1]));
        assert!(may_only_look(&[writer(1), writer(2)], "") && !may_only_look(&mixed, &mixed[1]));
    }

    #[test]
    fn a_writer_of_ours_that_is_lowest_holds_alone() {
        let nodes = [writer(7), reader(9), writer(3)];
        assert_eq!(alone(&nodes), Some(nodes[2].as_str()));
        assert_eq!(alone(&[reader(1), writer(2)]), None);
        assert_eq!(alone(&["_c_1-lock-0000000001".to_owned(), writer(2)]), None);
        assert_eq!(alone(&[]), None);
    }

    #[test]
    fn a_node_waits_for_the_one_directly_before_it() {
        let nodes = [writer(12), writer(3), writer(7)];
        assert_eq!(rank(&nodes, &nodes[1]), Rank::First);
        assert_eq!(rank(&nodes, &nodes[2]), Rank::Behind(&nodes[1]));
        assert_eq!(rank(&nodes, &nodes[0]), Rank::Behind(&nodes[2]));
        assert_eq!(rank(&nodes, &writer(1)), Rank::Gone);
    }

    #[test]
    fn order_is_by_number_not_by_name() {
        let low = format!("f{}", &writer(1)[1..]);
        let high = format!("0{}", &writer(2)[1..]);
        let nodes = [low.clone(), high.clone()];
        assert_eq!(rank(&nodes, &high), Rank::Behind(&low));
    }

    #[test]
    fn equal_numbers_block_each_other() {
        let nodes = [writer(i32::MAX as u32), writer(i32::MAX as u32)];
        assert_eq!(rank(&nodes, &nodes[0]), Rank::Behind(&nodes[1]));
        assert_eq!(rank(&nodes, &nodes[1]), Rank::Behind(&nodes[0]));
    }

    #[test]
    fn a_stranger_with_a_number_blocks_and_one_without_does_not() {
        let own = writer(5);
        let plain = ["readme".to_owned(), own.clone()];
        assert_eq!(rank(&plain, &own), Rank::First);
        for stranger in ["_c_1-lock-0000000001", "x-s-0000000001", "\u{e9}0000000001"] {
            let queue = [stranger.to_owned(), own.clone()];
            assert_eq!(rank(&queue, &own), Rank::Behind(stranger));
        }
    }

    #[test]
    fn a_name_is_read_back_and_as_long_as_is_reckoned_with() {
        let guid = Guid::new(&SystemRandomness);
        for mode in [Mode::Exclusive, Mode::Shared] {
            let name = numbered(guid, mode, 7);
            let read = Contender { name: &name, guid: Some(guid), mode, sequence: 7 };
            assert_eq!(Contender::parse(&name), Some(read));
            assert_eq!(1 + name.len(), NAME_BYTES);
        }
    }

    #[test]
    fn an_attempt_finds_its_nodes_lowest_first() {
        let guid = Guid::new(&SystemRandomness);
        let ours = |sequence| numbered(guid, Mode::Exclusive, sequence);
        let nodes = [ours(9), writer(1), ours(4)];
        assert_eq!(made_by(&nodes, guid), [nodes[2].as_str(), nodes[0].as_str()]);
    }
}
