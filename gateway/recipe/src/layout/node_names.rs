//! The names of lock nodes in each layout: builds the name to request, and parses the names of existing nodes.
//!
//! The names of other programs are those of Apache Curator 5 (`StandardLockInternalsDriver`, `ProtectedUtils`,
//! `InterProcessReadWriteLock`) and of kazoo 2 (`kazoo/recipe/lock.py`). Each program takes a node as its own if the
//! name has its marker before the number, whatever precedes the marker.

use fencegate_policies::{
    permits::{PermitCount, PermitIndex},
    plan::{ForeignLockLayout, LockLocation, LockMode},
};
use fencegate_process::randomness::Guid;

/// A layout whose contenders queue, each with a sequence number from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockQueueLayout {
    Native,
    /// A lock at the path of the native layout that this many contenders hold at once.
    Permits(PermitCount),
    CuratorMutex,
    CuratorReadWrite,
    Kazoo,
}

/// A child of a lock's parent that is in its queue: any node with a sequence number from the server.
///
/// A name may end in a number and lack the marker of its layout, because a later version or another program created it.
/// Such a node counts as exclusive and blocks all nodes after it, because it might hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockQueueNode<'a> {
    pub name: &'a str,
    /// The GUID by which an attempt finds its node when the reply to the create is lost. Nodes of other programs may
    /// have GUIDs, too, but never one of a gateway's attempt.
    pub guid: Option<Guid>,
    pub mode: LockMode,
    /// The permit count that this contender assumes, if it requests a permit.
    pub permits: Option<PermitCount>,
    pub sequence: u32,
}

const LINES: [LockQueueLayout; 4] = [
    LockQueueLayout::Native,
    LockQueueLayout::CuratorMutex,
    LockQueueLayout::CuratorReadWrite,
    LockQueueLayout::Kazoo,
];

/// Precedes the permit count in a contender's name. Builds without permits take such a name for another program's, and
/// wait behind it.
const PERMITS: &str = "-s";

/// Begins the name of the node that the holder of a permit has created; the permit's number follows.
const PERMIT: &str = "permit-";

/// Begins a name of Curator's protected mode: a UUID and the requested name follow.
const PROTECTED: &str = "_c_";

impl LockQueueLayout {
    /// The queue layout of locks at `site`; `None` if the site has no queue.
    pub fn for_site(site: &LockLocation) -> Option<Self> {
        match site {
            LockLocation::Native => Some(Self::Native),
            LockLocation::Semaphore { permits } => Some(Self::Permits(*permits)),
            LockLocation::Foreign { layout, .. } => match layout {
                ForeignLockLayout::CuratorMutex => Some(Self::CuratorMutex),
                ForeignLockLayout::CuratorReadWrite => Some(Self::CuratorReadWrite),
                ForeignLockLayout::Kazoo => Some(Self::Kazoo),
                ForeignLockLayout::ExclusiveNode => None,
            },
        }
    }

    /// The part of a name between GUID and number, for layouts without permits.
    pub fn mode_marker(self, mode: LockMode) -> &'static str {
        match (self, mode) {
            (Self::Native | Self::Permits(_), LockMode::Exclusive) => "-w-",
            (Self::Native | Self::Permits(_), LockMode::Shared) => "-r-",
            // Curator looks for `lock-`. This layout has no shared mode.
            (Self::CuratorMutex, _) => "-lock-",
            (Self::CuratorReadWrite, LockMode::Exclusive) => "-__WRIT__",
            (Self::CuratorReadWrite, LockMode::Shared) => "-__READ__",
            (Self::Kazoo, LockMode::Exclusive) => "__lock__",
            (Self::Kazoo, LockMode::Shared) => "__rlock__",
        }
    }

    /// The name that an attempt requests; the server appends the sequence number.
    pub(crate) fn requested_name(self, guid: Guid, mode: LockMode) -> String {
        let mark = self.mode_marker(mode);
        match self {
            Self::Native | Self::Kazoo => format!("{guid}{mark}"),
            Self::Permits(permits) => format!("{guid}{PERMITS}{permits}-"),
            Self::CuratorMutex | Self::CuratorReadWrite => format!("{PROTECTED}{}{mark}", format_uuid(guid)),
        }
    }

    /// The requested name with this number, as the server appends it: 0 for the first node under a parent.
    pub fn node_name(self, guid: Guid, mode: LockMode, sequence: i64) -> String {
        format!("{}{sequence:010}", self.requested_name(guid, mode))
    }

    /// Bytes of the longest name of a node in this layout, with the slash before it.
    pub(crate) fn max_name_len(self) -> usize {
        match self {
            Self::Native => 46,
            Self::Permits(_) => 50,
            Self::CuratorMutex | Self::CuratorReadWrite => 59,
            Self::Kazoo => 52,
        }
    }

    /// Whether only gateways use the parent and the nodes of this layout.
    pub fn is_native(self) -> bool {
        matches!(self, Self::Native | Self::Permits(_))
    }

    /// Parses the name of a child of a lock's parent; `None` for a child without a sequence number.
    pub fn parse_contender(self, name: &str) -> Option<LockQueueNode<'_>> {
        let (prefix, digits) = name.split_at_checked(name.len().checked_sub(10)?)?;
        let sequence = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??;
        if let Some(marked) = prefix.strip_suffix('-').filter(|prefix| self.has_marker(prefix)) {
            // Servers before 3.8 continue with negative numbers after the last one. The other programs sort such a name
            // before all others.
            return Some(self.parse_marked(name, marked, 0));
        }
        if let Some((guid, permits)) = parse_permit_request(prefix).filter(|_| self.is_native()) {
            let guid = Some(guid);
            let permits = Some(permits);
            return Some(LockQueueNode { name, guid, mode: LockMode::Exclusive, permits, sequence });
        }
        Some(self.parse_marked(name, prefix, sequence))
    }

    fn has_marker(self, prefix: &str) -> bool {
        [LockMode::Exclusive, LockMode::Shared].iter().any(|mode| prefix.ends_with(self.mode_marker(*mode)))
    }

    fn parse_marked<'a>(self, name: &'a str, prefix: &str, sequence: u32) -> LockQueueNode<'a> {
        let guid = |mode| {
            prefix.strip_suffix(self.mode_marker(mode)).and_then(|before| self.parse_guid_prefix(before))
        };
        let (guid, reads) = match (guid(LockMode::Exclusive), guid(LockMode::Shared)) {
            (None, Some(guid)) => (Some(guid), true),
            // A name with another program's reader marker is a reader's, whatever precedes the marker.
            (guid, _) => (guid, !self.is_native() && self.is_shared_name(prefix)),
        };
        let mode = if reads { LockMode::Shared } else { LockMode::Exclusive };
        LockQueueNode { name, guid, mode, permits: None, sequence }
    }

    fn is_shared_name(self, prefix: &str) -> bool {
        self.mode_marker(LockMode::Shared) != self.mode_marker(LockMode::Exclusive)
            && prefix.ends_with(self.mode_marker(LockMode::Shared).trim_start_matches('-'))
    }

    fn parse_guid_prefix(self, before: &str) -> Option<Guid> {
        match self {
            Self::Native | Self::Permits(_) | Self::Kazoo => Guid::parse(before),
            Self::CuratorMutex | Self::CuratorReadWrite => parse_uuid(before.strip_prefix(PROTECTED)?),
        }
    }
}

fn parse_permit_request(prefix: &str) -> Option<(Guid, PermitCount)> {
    let (guid, permits) = prefix.strip_suffix('-')?.rsplit_once(PERMITS)?;
    Some((Guid::parse(guid)?, PermitCount::parse(permits)?))
}

/// The name of the node that the holder of this permit creates.
pub fn permit_node_name(permit: PermitIndex) -> String {
    format!("{PERMIT}{permit}")
}

/// The permit that a node of this name is for.
pub fn parse_permit(name: &str) -> Option<PermitIndex> {
    PermitIndex::parse(name.strip_prefix(PERMIT)?)
}

/// The GUID of the attempt, from the name of a lock node of any layout.
pub fn attempt_guid(name: &str) -> Option<Guid> {
    LINES.iter().find_map(|line| line.parse_contender(name)?.guid)
}

/// The positions among the hexadecimal digits before which a UUID has a dash (RFC 9562, 4).
const DASHES: [usize; 4] = [8, 12, 16, 20];

fn format_uuid(guid: Guid) -> String {
    let digits = guid.to_string();
    let mut written = String::with_capacity(digits.len() + DASHES.len());
    for (at, digit) in digits.chars().enumerate() {
        if DASHES.contains(&at) {
            written.push('-');
        }
        written.push(digit);
    }
    written
}

fn parse_uuid(text: &str) -> Option<Guid> {
    let guid = Guid::parse(&text.replace('-', ""))?;
    (format_uuid(guid) == text).then_some(guid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    /// A node name of each layout is parsed back to its attempt, mode and sequence, and is shorter than the layout's
    /// maximum.
    #[test]
    fn name_round_trips_within_maximum_length() {
        let guid = Guid::new(&SystemRandomness);
        for line in LINES {
            for mode in [LockMode::Exclusive, LockMode::Shared] {
                let name = line.node_name(guid, mode, 7);
                let mode = if line == LockQueueLayout::CuratorMutex { LockMode::Exclusive } else { mode };
                let read = LockQueueNode { name: &name, guid: Some(guid), mode, permits: None, sequence: 7 };
                assert_eq!(line.parse_contender(&name), Some(read));
                assert_eq!(attempt_guid(&name), Some(guid), "{name}");
                assert!(name.len() < line.max_name_len(), "{name}");
            }
        }
    }

    /// The name of a semaphore's lock node carries the permit count; a permit node is no contender; a malformed count
    /// is foreign.
    #[test]
    fn semaphore_name_carries_permit_count() {
        let guid = Guid::new(&SystemRandomness);
        for permits in [2, 37, 1000].map(|count| PermitCount::new(count).expect("within bounds")) {
            let line = LockQueueLayout::Permits(permits);
            let name = line.node_name(guid, LockMode::Exclusive, 7);
            let read = LockQueueNode {
                name: &name,
                guid: Some(guid),
                mode: LockMode::Exclusive,
                permits: Some(permits),
                sequence: 7,
            };
            assert_eq!((line.parse_contender(&name), attempt_guid(&name)), (Some(read.clone()), Some(guid)));
            assert_eq!(LockQueueLayout::Native.parse_contender(&name), Some(read));
            assert!(name.len() < line.max_name_len(), "{name}");
            for permit in permits.iter() {
                let node = permit_node_name(permit);
                assert_eq!((parse_permit(&node), line.parse_contender(&node)), (Some(permit), None));
            }
        }
        for strange in ["-s1-", "-s03-", "-s1001-", "-s-", "-s3"] {
            let name = format!("{guid}{strange}0000000007");
            let read = LockQueueLayout::Native
                .parse_contender(&name)
                .map(|read| (read.permits, read.mode, read.guid));
            assert_eq!(read, Some((None, LockMode::Exclusive, None)), "{name}: a stranger's");
        }
        assert_eq!(["permit-", "permit-01", "permit-1000", "permit"].map(parse_permit), [None; 4]);
    }

    /// Names as Curator 5.4 and kazoo 2.11 create them.
    #[test]
    fn curator_and_kazoo_names_are_parsed() {
        let read = |line: LockQueueLayout, name: &'static str| {
            line.parse_contender(name).map(|read| (read.mode, read.sequence, read.guid.is_some()))
        };
        let uuid = "_c_0f4a1c9e-2b7d-4d55-9a1e-6f0e7f3f2b11";
        for (line, name, mode) in [
            (LockQueueLayout::CuratorMutex, format!("{uuid}-lock-0000000012"), LockMode::Exclusive),
            (LockQueueLayout::CuratorReadWrite, format!("{uuid}-__WRIT__0000000012"), LockMode::Exclusive),
            (LockQueueLayout::CuratorReadWrite, format!("{uuid}-__READ__0000000012"), LockMode::Shared),
            (
                LockQueueLayout::Kazoo,
                "0f4a1c9e2b7d4d559a1e6f0e7f3f2b11__lock__0000000012".into(),
                LockMode::Exclusive,
            ),
            (
                LockQueueLayout::Kazoo,
                "0f4a1c9e2b7d4d559a1e6f0e7f3f2b11__rlock__0000000012".into(),
                LockMode::Shared,
            ),
        ] {
            assert_eq!(read(line, Box::leak(name.into_boxed_str())), Some((mode, 12, true)));
        }
        // A name may lack Curator's protected mode, or have a kazoo program's own prefix.
        assert_eq!(
            read(LockQueueLayout::CuratorReadWrite, "__READ__0000000003"),
            Some((LockMode::Shared, 3, false))
        );
        assert_eq!(
            read(LockQueueLayout::Kazoo, "worker-7__rlock__0000000003"),
            Some((LockMode::Shared, 3, false))
        );
    }

    /// A foreign name with a sequence number counts as exclusive; a name without one is no contender.
    #[test]
    fn foreign_name_is_exclusive_if_numbered() {
        for line in LINES {
            for name in ["x-s-0000000001", "\u{e9}0000000001", "0000000001", "_c_1-lock-0000000001"] {
                let read = line.parse_contender(name).map(|read| (read.mode, read.sequence, read.guid));
                assert_eq!(read, Some((LockMode::Exclusive, 1, None)), "{line:?} {name}");
            }
            for name in ["", "readme", "lease_holder", "__lock__", "000000001"] {
                assert_eq!(line.parse_contender(name), None, "{line:?} {name}");
            }
        }
        assert_eq!(attempt_guid("gw-1-0000012345678901"), None);
    }

    /// A sequence number that has wrapped below zero is ordered before all others.
    #[test]
    fn negative_sequence_is_first() {
        let name = "0f4a1c9e2b7d4d559a1e6f0e7f3f2b11__lock__-2147483648";
        assert_eq!(LockQueueLayout::Kazoo.parse_contender(name).map(|read| read.sequence), Some(0));
        assert_eq!(
            LockQueueLayout::Kazoo.parse_contender(&name.replace("__-", "__")).map(|read| read.sequence),
            Some(1 << 31)
        );
    }
}
