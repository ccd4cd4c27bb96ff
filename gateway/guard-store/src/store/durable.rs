//! The trait of a store, and its errors.

use std::{io, path::Path, time::Duration};

use fencegate_policies::operation::OperationId;
use fencegate_process::command_hint;
use rustix::fs::statvfs;

use super::{
    backup::{BackupFormatError, BackupHeader},
    change::StoreMutation,
    recovery::{FORMAT, JournalSize, RecoveredState},
};
use crate::operation::OperationJournalEntry;

/// Keeps watermarks and journal over restarts. Changes come from one thread, reads from any.
pub trait GuardStore: Send + Sync + 'static {
    /// Reads the stored state. Before it returns it removes the marker of a clean stop for good, because a start
    /// after an unclean end must not find it. The longer of `max_execution` and the stored one is stored.
    fn recover(&self, max_execution: Duration) -> Result<RecoveredState, StoreError>;

    /// Commits the changes, which are durable when this returns. After an error it is not known which of them
    /// are.
    fn commit(&self, changes: &[StoreMutation]) -> Result<(), StoreError>;

    /// An operation as it was last committed.
    fn operation(&self, id: &OperationId) -> Result<Option<OperationJournalEntry>, StoreError>;

    /// Operations with an unknown outcome, at most `most`.
    fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, StoreError>;

    /// The ids of operations with an unknown outcome, at most `most`.
    fn unresolved_operation_ids(&self, most: usize) -> Result<Vec<OperationId>, StoreError>;

    /// The operation with this reference, see [`OperationId::reference`].
    fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, StoreError>;

    /// Finished operations whose time is over, at most `most`. `now`: in seconds of the store's time.
    fn expired(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError>;

    /// The size of the journal, as of the last commit.
    fn journal(&self) -> JournalSize;

    /// The disk of the store; `None` if the system does not report it.
    fn disk(&self) -> Option<DiskSpace>;

    /// Writes a backup of all that is committed now. Commits go on meanwhile.
    fn write_backup(&self, into: &mut dyn io::Write) -> Result<BackupHeader, StoreBackupError>;
}

/// The sizes of the file system of a store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that a program without privileges can still write.
    pub free: u64,
    pub size: u64,
}

impl DiskSpace {
    /// The file system of `path`.
    pub(super) fn at_path(path: &Path) -> Option<Self> {
        let told = statvfs(path).ok()?;
        Some(Self { free: told.f_bavail * told.f_frsize, size: told.f_blocks * told.f_frsize })
    }
}

/// The reason for which a store cannot be made, opened or used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "{path} does not exist; make it once with `{}` (`fencegate era show -c POLICY` prints both)",
        command_hint::command_line(
            command_hint::CommandHintTarget::Guard,
            "guard --init --floor E --ensemble UUID"
        )
    )]
    Missing { path: String },
    #[error("{path} exists already")]
    Exists { path: String },
    #[error(
        "{path} is a backup, and no store; move it aside and make a store of it with `{}`, where POLICY is that of a gateway",
        command_hint::command_line(command_hint::CommandHintTarget::Guard, &format!("guard restore {path} --replace --policy POLICY"))
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

/// The error of writing a backup.
#[derive(Debug, thiserror::Error)]
pub enum StoreBackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file or stream for the backup cannot be written.
    #[error("the store cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// The error of making a store from a backup.
#[derive(Debug, thiserror::Error)]
pub enum RestoreStoreError {
    #[error(transparent)]
    Backup(#[from] BackupFormatError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the floor {floor} is below {highest}, which the backup has seen itself")]
    Floor { floor: u64, highest: u64 },
}
