//! Bounds that we keep so that ZooKeeper's own are never reached: bytes of a session's paths, and numbers of a queue.

/// Bytes of lock paths in one session. ZooKeeper's default buffer is 1 MiB; a test with 1.4 MB of paths passed.
pub const MAX_SESSION_PATH_BYTES: usize = 512 * 1024;

/// The part of [`MAX_SESSION_PATH_BYTES`] that is kept for other nodes of a session: its member node, and the nodes that name its
/// plan.
pub const RESERVED_PATH_BYTES: usize = 1024;

/// A lock node with a higher number never holds: its parent is replaced, see [`crate::recipe::sequence_rollover`]. The server
/// counts to twice this number, so the nodes that are above the limit still have numbers of their own.
pub const SEQUENCE_LIMIT: u32 = 1 << 30;
