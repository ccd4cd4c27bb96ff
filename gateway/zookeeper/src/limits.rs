//! Limits below ZooKeeper's own, so that those are never reached: bytes of a session's paths, and sequence numbers.

/// The most bytes of lock paths in one session: half of ZooKeeper's default buffer of 1 MiB. A test with 1.4 MB of
/// paths still passed.
pub const MAX_SESSION_PATH_BYTES: usize = 512 * 1024;

/// The part of [`MAX_SESSION_PATH_BYTES`] that is kept for other nodes of a session: its member node, and the nodes
/// that publish its plan.
pub const RESERVED_PATH_BYTES: usize = 1024;

/// A lock node with a higher sequence number never holds: its parent is replaced, see
/// `sequence_rollover`. The server counts to twice this number, so nodes above the limit still have
/// distinct numbers.
pub const SEQUENCE_LIMIT: u32 = 1 << 30;
