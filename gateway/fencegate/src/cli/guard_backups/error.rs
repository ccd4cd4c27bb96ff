//! The reason for which there is no backup, or no store from a backup.

use std::path::Path;

use fencegate_guard_store::store::{StoreBackupError, StoreError, backup::BackupFormatError};
use fencegate_process::command_hint::shell_quote;

use crate::{
    backups::{atomic_file::WriteBackupError, restore_target::RestoreBackupError},
    cli::{admin_client, era},
};

/// The reason for which the verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackupCommandError {
    #[error(transparent)]
    Asked(#[from] admin_client::AdminClientError),
    #[error(transparent)]
    NotWritten(#[from] WriteBackupError),
    #[error("cannot read the store: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    NotMade(#[from] RestoreBackupError),
    #[error("FG0611: {backup}: {source}")]
    Broken { backup: String, source: BackupFormatError },
    #[error("FG0613: the store is a PostgreSQL that guards share; {0}")]
    Shared(&'static str),
    #[error(transparent)]
    Era(#[from] era::EraCommandError),
    #[error(
        "FG0615: no floor is known: `--policy` names a gateway's policy, so that ZooKeeper can be asked; or `--floor E`, \
         which `fencegate era show -c POLICY` prints where it can be reached, once the old guard has ended"
    )]
    NoFloor,
    #[error("FG0615: the backup is of the guard of installation {theirs}; the policy leads to {ours}")]
    OtherInstallation { theirs: String, ours: String },
    #[error(
        "FG0615: ZooKeeper went back to an older state: it gives out tokens below earlier ones, and no floor is \
         above them all; run `fencegate era bump -c {}` first",
        shell_quote(.policy)
    )]
    WentBack { policy: String },
}

impl BackupCommandError {
    pub(super) fn from_copy_error(path: &Path, not: StoreBackupError) -> Self {
        match not {
            StoreBackupError::Store(error) => Self::Store(error),
            StoreBackupError::Write(error) => Self::NotWritten(WriteBackupError::io(path, error)),
        }
    }
}
