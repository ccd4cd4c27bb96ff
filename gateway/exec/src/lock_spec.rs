//! The lock that a command requests, and the facts about the lock that it holds.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::BootInstant;

/// The lock that a command requests.
#[derive(Debug, Clone)]
pub struct CommandLockSpec {
    pub key: ResourceKey,
    pub access: CommandLockMode,
    /// How many may hold the key at once. All clients of the key must give the same number. Default: the number in
    /// the policy.
    pub permits: Option<u16>,
    pub wait: LockWaitPolicy,
}

/// Whether other holders are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandLockMode {
    Exclusive,
    /// Others may share the key.
    Shared,
}

/// How long to wait for other holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWaitPolicy {
    For(Duration),
    Forever,
}

/// The facts about its lock that the command receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLockInfo {
    /// `Fencing-Token`.
    pub token: String,
    /// `Fencing-Number`.
    pub number: u64,
    /// The lease that requests under the lock show; `None` if no gateway holds the lock.
    pub lease: Option<String>,
    /// The number of the permit, where the key may have several holders.
    pub permit: Option<u32>,
}

/// The state of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLockStatus {
    /// No other holder can have the lock before this instant.
    Proven(BootInstant),
    /// No other holder can have the lock before this instant, and an operator has requested that the holder
    /// release it.
    Revoked(BootInstant),
    /// Another holder may have the lock now.
    Lost,
}

/// The lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireLockError {
    #[error("FG0621: `{0}` is held by another client, and the wait for it is over; nothing was run")]
    Held(ResourceKey),
    /// Another attempt may succeed.
    #[error("FG0623: the lock of `{key}` was not granted: {why}; nothing was run")]
    Unavailable { key: ResourceKey, why: String },
    /// No other attempt can succeed.
    #[error("FG0623: the lock of `{key}` was not granted: {why}; nothing was run")]
    Permanent { key: ResourceKey, why: String },
}
