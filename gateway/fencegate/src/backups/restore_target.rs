//! The path at which a store is created from a backup. No other process may use the path meanwhile. An old store is
//! moved aside, and never removed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_guard_store::store::{
    RedbStore, RestoreOptions, RestoreStoreError, StoreError,
    backup::{BackupHeader, verify_backup},
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempPath;

use super::atomic_file::{OverwritePolicy, fsync_parent_dir, parent_folder};

/// The path of a store. While this value exists, no guard can start on the store at the path.
pub struct RestoreTarget {
    path: PathBuf,
    /// The file of the old store, locked as a guard locks it.
    existing: Option<File>,
    /// The header of the old store, if it can still be read.
    known: Option<ReplacedStoreHeader>,
}

/// The header of a store that was or will be moved aside.
struct ReplacedStoreHeader {
    path: PathBuf,
    header: BackupHeader,
}

/// The error of a restore. No store was created, and the old store is still in its place.
#[derive(Debug, thiserror::Error)]
pub enum RestoreBackupError {
    #[error(
        "FG0614: {path} exists already; `--replace` moves it aside, once it is sure that its guard does not run anywhere"
    )]
    Exists { path: String },
    #[error("FG0614: a guard, or another command, is at work on {path}; stop it first")]
    InUse { path: String },
    #[error("FG0614: {path} was replaced by another file meanwhile; another process works there")]
    Changed { path: String },
    #[error("FG0614: {0}")]
    Newer(StoreError),
    /// The message of the error begins with a code of its own.
    #[error("{0}")]
    Moved(StoreError),
    #[error("FG0614: {path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("FG0615: the floor {floor} is below {highest}, which the store at {path} has let in")]
    Floor { floor: u64, highest: u64, path: String },
    #[error("FG0615: {0}")]
    BelowBackup(RestoreStoreError),
    #[error("FG0611: {backup}: {source}")]
    Broken { backup: String, source: RestoreStoreError },
    #[error("FG0614: cannot make {path}: {source}")]
    Store { path: String, source: RestoreStoreError },
}

impl RestoreTarget {
    /// Locks the old store at the path, if there is one.
    ///
    /// # Errors
    /// Returns an error if an old store is at the path and must be kept, or if a process uses it.
    pub fn open(path: &Path, existing: OverwritePolicy) -> Result<Self, RestoreBackupError> {
        if path.symlink_metadata().is_ok() {
            if existing == OverwritePolicy::Keep {
                return Err(RestoreBackupError::Exists { path: path.display().to_string() });
            }
            let (old, known) = lock_existing(path)?;
            return Ok(Self { path: path.to_owned(), existing: Some(old), known });
        }
        // A restore that was killed between its two renames has left no store at the path. Its old store is under
        // the name of a replaced one, and still bounds the floor.
        let newest = newest_replaced_number(path).map_err(|source| RestoreBackupError::io(path, source))?;
        let known = match newest {
            Some(number) => lock_existing(&replaced_path(path, number))?.1,
            None => None,
        };
        Ok(Self { path: path.to_owned(), existing: None, known })
    }

    /// Creates the store. When this returns, the store is at its path.
    ///
    /// # Errors
    /// Returns an error if the backup is not complete, or if the floor is below the newest token of the old store.
    pub fn restore(
        self,
        backup: &Path,
        restored: &RestoreOptions,
    ) -> Result<RestoredStore, RestoreBackupError> {
        let name = self.path.display().to_string();
        let restored = self.merge_known_limits(restored)?;
        let failed = |source| RestoreBackupError::io(&self.path, source);
        let new = self.create_temp_path()?;
        let header = RedbStore::restore(&new, backup, &restored).map_err(|source| match source {
            RestoreStoreError::Floor { .. } => RestoreBackupError::BelowBackup(source),
            RestoreStoreError::Backup(_) => {
                RestoreBackupError::Broken { backup: backup.display().to_string(), source }
            }
            RestoreStoreError::Store(_) => RestoreBackupError::Store { path: name.clone(), source },
        })?;
        self.copy_owner(&new).map_err(failed)?;
        let aside = self.move_aside()?;
        if let Err(failure) = new.persist_noclobber(&self.path) {
            // Move the old store back. If that fails as well, the old store keeps the name of a replaced one.
            aside.iter().for_each(|aside| drop(move_back(aside, &self.path)));
            return Err(failed(failure.error));
        }
        fsync_parent_dir(&self.path).map_err(failed)?;
        let closed_for = restored.quarantine_length(&header);
        Ok(RestoredStore { header, aside, closed_for })
    }

    /// Raises the settings of the new store to those of the old store. The new store admits nothing that the old one
    /// has admitted, and stays closed at least as long as a guard that starts on the old one.
    fn merge_known_limits(&self, restored: &RestoreOptions) -> Result<RestoreOptions, RestoreBackupError> {
        let Some(ReplacedStoreHeader { path, header }) = &self.known else { return Ok(restored.clone()) };
        let floor = restored.floor;
        let highest = header.highest;
        if floor < highest {
            return Err(RestoreBackupError::Floor { floor, highest, path: path.display().to_string() });
        }
        let max_execution = restored.max_execution.max(header.max_execution.unwrap_or_default());
        Ok(RestoreOptions { max_execution, ..restored.clone() })
    }

    /// A temporary name for the new store. A file that a killed command has left there is removed.
    fn create_temp_path(&self) -> Result<TempPath, RestoreBackupError> {
        let path = path_with_suffix(&self.path, "restoring");
        let failed = |source| RestoreBackupError::io(&path, source);
        match File::open(&path) {
            Ok(file) => {
                lock_file(&file, &path)?;
                fs::remove_file(&path).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        TempPath::try_from_path(&path).map_err(failed)
    }

    /// Gives the store to the owner of the folder, which is the user of the guard: the user of this command may be
    /// root.
    fn copy_owner(&self, new: &Path) -> io::Result<()> {
        let of = match &self.existing {
            Some(old) => old.metadata()?,
            None => parent_folder(&self.path).metadata()?,
        };
        let is = new.metadata()?;
        if (is.uid(), is.gid()) == (of.uid(), of.gid()) {
            return Ok(());
        }
        chown(new, Some(of.uid()), Some(of.gid()))
    }

    fn move_aside(&self) -> Result<Option<PathBuf>, RestoreBackupError> {
        let Some(old) = &self.existing else { return Ok(None) };
        let failed = |source| RestoreBackupError::io(&self.path, source);
        let newest = newest_replaced_number(&self.path).map_err(failed)?;
        let aside = replaced_path(&self.path, newest.map_or(1, |newest| newest.saturating_add(1)));
        if aside.symlink_metadata().is_ok() {
            return Err(RestoreBackupError::io(&aside, io::ErrorKind::AlreadyExists.into()));
        }
        check_same_file(old, &self.path)?;
        fs::rename(&self.path, &aside).map_err(failed)?;
        Ok(Some(aside))
    }
}

impl RestoreBackupError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

/// A store that was created from a backup.
#[derive(Debug)]
pub struct RestoredStore {
    /// The description of the backup.
    pub header: BackupHeader,
    /// The path to which the old store was moved, if there was one.
    pub aside: Option<PathBuf>,
    /// The time for which the guard admits nothing after its first start.
    pub closed_for: Duration,
}

/// Locks a store that no process uses, and reads its header. No process can open the store until the file is closed.
fn lock_existing(path: &Path) -> Result<(File, Option<ReplacedStoreHeader>), RestoreBackupError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|source| RestoreBackupError::io(path, source))?;
    let known = read_replaced_header(path)?;
    lock_file(&file, path)?;
    check_same_file(&file, path)?;
    Ok((file, known))
}

/// The header of a store. `None` for a damaged store, of which nothing can be read: it may be replaced.
fn read_replaced_header(path: &Path) -> Result<Option<ReplacedStoreHeader>, RestoreBackupError> {
    let header = match RedbStore::open(path).and_then(|store| store.backup_header()) {
        Ok(header) => Some(header),
        Err(StoreError::InUse { path }) => return Err(RestoreBackupError::InUse { path }),
        Err(StoreError::Missing { path }) => return Err(RestoreBackupError::Changed { path }),
        Err(moved @ StoreError::Moved { .. }) => return Err(RestoreBackupError::Moved(moved)),
        Err(newer @ StoreError::Newer { .. }) => return Err(RestoreBackupError::Newer(newer)),
        // The file at the path of the store is a backup file, which has a header of its own.
        Err(StoreError::Backup { .. }) => verify_backup(path).ok(),
        Err(StoreError::Exists { .. } | StoreError::Unreadable { .. } | StoreError::Failed(_)) => None,
    };
    Ok(header.map(|header| ReplacedStoreHeader { path: path.to_owned(), header }))
}

/// Locks the file of a store that no process uses. Until the lock is released no process can open the store.
fn lock_file(file: &File, path: &Path) -> Result<(), RestoreBackupError> {
    file.try_lock().map_err(|error| {
        let path = path.display().to_string();
        match error {
            TryLockError::WouldBlock => RestoreBackupError::InUse { path },
            TryLockError::Error(source) => RestoreBackupError::Io { path, source },
        }
    })
}

/// Checks that `path` still names the locked file: a lock does not prevent that the name is given to another file.
fn check_same_file(file: &File, path: &Path) -> Result<(), RestoreBackupError> {
    let failed = |source| RestoreBackupError::io(path, source);
    let held = file.metadata().map_err(failed)?;
    let named = path.metadata().map_err(failed)?;
    match (held.dev(), held.ino()) == (named.dev(), named.ino()) {
        true => Ok(()),
        false => Err(RestoreBackupError::Changed { path: path.display().to_string() }),
    }
}

/// Moves the old store back, but not over a file that was created at its path meanwhile.
fn move_back(aside: &Path, path: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, aside, CWD, path, RenameFlags::NOREPLACE)?)
}

/// The largest number of a store that was moved aside from `path`.
fn newest_replaced_number(path: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    for entry in fs::read_dir(parent_folder(path))? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let number = name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        let of_ours =
            |number: &u64| replaced_path(path, *number).file_name().is_some_and(|ours| *ours == *name);
        newest = newest.max(number.filter(of_ours));
    }
    Ok(newest)
}

fn replaced_path(path: &Path, number: u64) -> PathBuf {
    path_with_suffix(path, &format!("replaced-{number}"))
}

fn path_with_suffix(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

#[cfg(test)]
mod tests;
