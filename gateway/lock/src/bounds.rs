//! Where we stop before ZooKeeper would have to: how much one session may have, and how far a queue may count.

/// Bytes of lock paths in one session. ZooKeeper's default buffer is 1 MiB; 1.4 MB of paths was survived.
pub const MOST_BYTES: usize = 512 * 1024;

/// Of these, for what a session has beside lock nodes: its member node, and those by which it names its plan.
pub const OWN_BYTES: usize = 1024;

/// Lock nodes with higher numbers than this are not served: their parent is replaced, see [`crate::recipe::rotate`].
/// Half of what the server has is left for those who find that out.
pub const SEQUENCE_LIMIT: u32 = 1 << 30;
