//! Writes a backup into a file. The file gets its name only when it is complete.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use fencegate_guard_store::store::backup::{BackupFormatError, BackupHeader, verify_backup};
use rustix::fs::fstatvfs;
use tempfile::{Builder, NamedTempFile};

/// Whether a file that exists already is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverwritePolicy {
    Keep,
    Replace,
}

/// A backup that is being written under a temporary name. If it is dropped before [`AtomicBackupFile::finish`],
/// the file is removed.
pub struct AtomicBackupFile {
    file: NamedTempFile,
    path: PathBuf,
    existing: OverwritePolicy,
}

/// The error of a backup that was not made. An earlier backup under the same name is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteBackupError {
    #[error("FG0612: {path} exists already; `--overwrite` replaces it")]
    Exists { path: String },
    #[error(
        "FG0612: cannot write the backup to {path}: {source}; nothing is left of it, and the store is as it was"
    )]
    Io { path: String, source: io::Error },
    #[error("FG0611: the backup for {path} is incomplete: {source}; nothing is left of it")]
    Broken { path: String, source: BackupFormatError },
}

/// The bytes that a backup leaves free on every disk. The guard's store may be on the same disk, and a guard
/// that cannot write ends.
const LEFT_FREE: u64 = 16 << 20;

impl AtomicBackupFile {
    /// Begins a backup with the name `path`.
    ///
    /// # Errors
    /// Returns an error if the file exists already and must be kept, or if its folder cannot be written.
    pub fn begin(path: &Path, existing: OverwritePolicy) -> Result<Self, WriteBackupError> {
        if existing == OverwritePolicy::Keep && path.symlink_metadata().is_ok() {
            return Err(WriteBackupError::Exists { path: path.display().to_string() });
        }
        // Only its owner may read the file: it contains responses to clients.
        let made = Builder::new().prefix(".fencegate-backup-").tempfile_in(parent_folder(path));
        let file = made.map_err(|source| WriteBackupError::io(path, source))?;
        Ok(Self { file, path: path.to_owned(), existing })
    }

    /// Ends the backup. The file is read again and verified before it gets its name.
    ///
    /// # Errors
    /// Returns an error if the written file is not complete, or cannot get its name.
    pub fn finish(self) -> Result<BackupHeader, WriteBackupError> {
        let Self { file, path, existing } = self;
        let synced = file.as_file().sync_all();
        synced.map_err(|source| WriteBackupError::io(&path, source))?;
        let broken = |source| WriteBackupError::Broken { path: path.display().to_string(), source };
        let header = verify_backup(file.path()).map_err(broken)?;
        let named = match existing {
            OverwritePolicy::Keep => file.persist_noclobber(&path),
            OverwritePolicy::Replace => file.persist(&path),
        };
        named.map_err(|failed| match failed.error.kind() {
            io::ErrorKind::AlreadyExists => WriteBackupError::Exists { path: path.display().to_string() },
            _ => WriteBackupError::io(&path, failed.error),
        })?;
        fsync_parent_dir(&path).map_err(|source| WriteBackupError::io(&path, source))?;
        Ok(header)
    }

    fn check_space(&self, bytes: usize) -> io::Result<()> {
        let disk = fstatvfs(self.file.as_file())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // Some file systems do not count blocks and report no free space, so the check would always fail there.
        if disk.f_blocks > 0 && free < LEFT_FREE.saturating_add(bytes as u64) {
            let message =
                format!("the disk is full but for {free} bytes, and {LEFT_FREE} are left to others");
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        Ok(())
    }
}

impl Write for AtomicBackupFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_space(bytes.len())?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteBackupError {
    pub fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

/// The folder of a path. A name without a folder is in the current folder.
pub(super) fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes the names in the folder of this file to the disk.
pub(super) fn fsync_parent_dir(path: &Path) -> io::Result<()> {
    File::open(parent_folder(path))?.sync_all()
}
