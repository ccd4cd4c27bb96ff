//! Reads a key file of bounded size, and refuses one that other users can read or write.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::key_error::TicketJwkError;

/// The defect of a key file. The texts quote no part of it.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} exists already, and a key that is overwritten is lost; choose another name")]
    Exists { path: PathBuf },
    #[error(
        "{path} has mode {mode:04o}: others can read this secret; run `chmod 600 {path}`, and make a new key if \
         others have been on this machine"
    )]
    Readable { path: PathBuf, mode: u32 },
    #[error("{path} has mode {mode:04o}: others can put a key of theirs in; run `chmod go-w {path}`")]
    Writable { path: PathBuf, mode: u32 },
    #[error("{path} is no file, or larger than 64 KiB")]
    Shape { path: PathBuf },
    #[error("{path}")]
    Key { path: PathBuf, source: TicketJwkError },
}

/// The users who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFileAccess {
    /// The owner and the group: containers get their secrets by a group (`fsGroup`).
    Secret,
    /// Everybody may read it; only the owner and the group may write.
    Public,
}

/// Identifies the state of a file, to detect a change. It includes the change time because a file that is moved into
/// place keeps its modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp([i128; 4]);

/// The most bytes of any key file or key set.
pub const LARGEST: usize = 64 * 1024;

/// Reads a file whose content is a secret.
///
/// # Errors
/// Returns [`KeyFileError`], also if others can read the file.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    read(path, KeyFileAccess::Secret)
}

pub(super) fn read(path: &Path, access: KeyFileAccess) -> Result<Vec<u8>, KeyFileError> {
    read_stamped(path, access).map(|(bytes, _)| bytes)
}

/// Reads the content with its stamp. The stamp is taken before the read, so that a change in between is noticed
/// later.
pub(super) fn read_stamped(path: &Path, access: KeyFileAccess) -> Result<(Vec<u8>, FileStamp), KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    // The check is on the open file and not on its name, so that the checked file is the one that is read.
    let seen = file.metadata().map_err(failed)?;
    check_permissions(path, &seen, access)?;
    let mut bytes = Vec::new();
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if !seen.is_file() || bytes.len() > LARGEST {
        return Err(KeyFileError::Shape { path: path.into() });
    }
    Ok((bytes, FileStamp::from_metadata(&seen)))
}

fn check_permissions(path: &Path, seen: &Metadata, access: KeyFileAccess) -> Result<(), KeyFileError> {
    let path = path.to_owned();
    let mode = seen.mode() & 0o7777;
    match access {
        KeyFileAccess::Secret if mode & 0o027 != 0 => Err(KeyFileError::Readable { path, mode }),
        KeyFileAccess::Public if mode & 0o002 != 0 => Err(KeyFileError::Writable { path, mode }),
        KeyFileAccess::Secret | KeyFileAccess::Public => Ok(()),
    }
}

impl FileStamp {
    /// The stamp of a file; `None` if there is no such file.
    pub(super) fn read_from(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|seen| Self::from_metadata(&seen))
    }

    fn from_metadata(seen: &Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let changed = nanos(seen.ctime(), seen.ctime_nsec());
        let modified = nanos(seen.mtime(), seen.mtime_nsec());
        Self([seen.ino().into(), seen.size().into(), modified, changed])
    }
}
