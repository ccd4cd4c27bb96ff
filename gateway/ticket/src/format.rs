//! The form of a ticket: its validity, its largest size, and its type.

/// The wall clock, which tickets are dated by. A clock before 1970 gives 0, and then every ticket is from the future.
pub use fencegate_process::clock::unix_seconds;

/// How long a ticket is good, in seconds. The time is short because a ticket cannot be revoked.
pub const VALID: u64 = 300;

/// How far the clocks of gateway and guard may be apart, in seconds.
pub const LEEWAY: u64 = 30;

/// The longest ticket, in bytes. One with keys of 8192 bytes together, all escaped in JSON, has 22 KiB.
pub const LONGEST: usize = 32 * 1024;

/// `typ` of the header: a token made for something else under the same key is no ticket (RFC 8725, 3.11).
pub(super) const TYPE: &str = "fencing-ticket+jwt";
