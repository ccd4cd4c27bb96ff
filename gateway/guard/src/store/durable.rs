//! Who keeps what must not be forgotten, and why that may fail.

use std::{io, path::Path, time::Duration};

use fencegate_policies::operation::OperationId;
use fencegate_process::again;
use rustix::fs::statvfs;

use super::{
    backup::{Broken, Header},
    change::Change,
    remembered::{FORMAT, JournalSize, Remembered},
};
use crate::operation::Entry;

/// Keeps marks and journal over restarts. Called from one thread for changes, and from any for reading.
pub trait Store: Send + Sync + 'static {
    /// What was remembered. The marker of a clean stop is taken out for good before this returns: whoever starts after
    /// an unclean end must not find it. From then on the store remembers the longer of `max_execution` and what it
    /// remembered before.
    fn load(&self, max_execution: Duration) -> Result<Remembered, StoreError>;

    /// All of it is durable when this returns, or none of it is known to be.
    fn commit(&self, changes: &[Change]) -> Result<(), StoreError>;

    /// An operation as it was last committed.
    fn operation(&self, id: &OperationId) -> Result<Option<Entry>, StoreError>;

    /// Those with an unknown outcome, at most `most`.
    fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, StoreError>;

    /// Only their ids.
    fn unfinished_ids(&self, most: usize) -> Result<Vec<OperationId>, StoreError>;

    /// By the beginning of its id, as [`OperationId::reference`] gives it.
    fn by_reference(&self, reference: &str) -> Result<Option<(OperationId, Entry)>, StoreError>;

    /// Finished ones that are kept no longer, at most `most`; `now` in seconds of the store's time.
    fn outlived(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError>;

    /// What the journal takes up, as it was last committed.
    fn journal(&self) -> JournalSize;

    /// The disk that it grows on; none where the system does not say.
    fn disk(&self) -> Option<Disk>;

    /// Writes a backup of what is committed now. Others go on committing meanwhile.
    fn copy(&self, into: &mut dyn io::Write) -> Result<Header, NotCopied>;
}

/// Bytes of the file system that a store is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// That a program without privileges can still write.
    pub free: u64,
    pub size: u64,
}

impl Disk {
    /// The one below `path`.
    pub(super) fn below(path: &Path) -> Option<Self> {
        let told = statvfs(path).ok()?;
        Some(Self { free: told.f_bavail * told.f_frsize, size: told.f_blocks * told.f_frsize })
    }
}

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "{path} does not exist; make it once with `{}` (`fencegate era show -c POLICY` prints both)",
        again::command(again::Of::Guard, "guard --init --floor E --ensemble UUID")
    )]
    Missing { path: String },
    #[error("{path} exists already")]
    Exists { path: String },
    #[error(
        "{path} is a backup, and no store; move it aside and make a store of it with `{}`, where POLICY is that of a gateway",
        again::command(again::Of::Guard, &format!("guard restore {path} --replace --policy POLICY"))
    )]
    Backup { path: String },
    #[error("{path} is of format {found}, this build reads up to {FORMAT}; upgrade the guard")]
    Newer { path: String, found: u32 },
    #[error(
        "FG0545: {path} was moved into {to}, and is no guard's store any more; give this guard the file that names \
         `store.postgres`"
    )]
    Moved { path: String, to: String },
    #[error(
        "FG0546: another process has {path} open; end it first: `systemctl stop fencegate-guard` where it is that \
         unit, and `fuser {path}` names it"
    )]
    InUse { path: String },
    #[error("{path} cannot be read: {why}")]
    Unreadable { path: String, why: String },
    #[error("{0}")]
    Failed(String),
}

/// There is no backup.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody takes what is written.
    #[error("nobody takes it: {0}")]
    Write(#[from] io::Error),
}

/// There is no restored store.
#[derive(Debug, thiserror::Error)]
pub enum NotRestored {
    #[error(transparent)]
    Backup(#[from] Broken),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the floor {floor} is below {highest}, which the backup has seen itself")]
    Floor { floor: u64, highest: u64 },
}
