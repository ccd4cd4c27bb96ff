//! The folder that outlives the process. Each process has a record of its own there, so that none overwrites another
//! one's.
//!
//! In a rolling restart two processes use one folder for a while, and one of them may be frozen. Each process writes
//! its own record, and locks a file of its own for as long as it lives. The highest record of each installation counts.
//! A process copies that into its own record, and then removes the records of ended processes.

use fencegate_process::command_hint;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use fencegate_process::randomness::{Guid, Randomness};
use rustix::fs::{FlockOperation, flock};
use tracing::warn;

use super::record::{HighestEpochRecord, ParseInstallationRecordError};

/// The files of one process in the folder, claimed until this is dropped.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    name: Guid,
    /// The lock on the process's file, held until the file is closed. If the process dies, the kernel closes it.
    _lock: File,
}

/// Errors of the folder.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error(
        "FG0519: `state_dir`: {}: {why}; put back a copy of it; if there is none, move it away and begin the next era: \
         `{}`, with an E not below any token seen by guards and services",
        path.display(), command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era bump --at-least E")
    )]
    Damaged { path: PathBuf, why: ParseInstallationRecordError },
    #[error(
        "FG0519: `state_dir`: {}: {why}; start the gateway's newer version again, or move the file away and begin the \
         next era: `{}`",
        path.display(), command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era bump --at-least E")
    )]
    Newer { path: PathBuf, why: ParseInstallationRecordError },
    #[error("FG0519: `state_dir`: cannot read {}: {source}; let the user that the gateway runs as read it", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "FG0514: `state_dir`: cannot write {}: {source}; make the folder, and give it to the user that the \
         gateway runs as",
        path.display()
    )]
    Write { path: PathBuf, source: io::Error },
}

/// The first part of the names of a process's files, and their endings.
const PREFIX: &str = "seen-";
const RECORD: &str = ".json";
const LOCK: &str = ".lock";
const DRAFT: &str = ".draft";

/// The folder is read this often: it has to be read anew if a listed file was removed meanwhile.
const MAX_ATTEMPTS: usize = 16;

/// The highest record of each installation; empty if there is none yet.
pub fn read_records(folder: &Path) -> Result<Vec<HighestEpochRecord>, StateDirError> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(records) = try_read_records(folder)? {
            return Ok(keep_highest_records(records));
        }
    }
    let source = io::Error::other("files came and went too often");
    Err(StateDirError::Read { path: folder.to_owned(), source })
}

/// The highest record of each installation: epochs of different installations cannot be compared.
fn keep_highest_records(records: Vec<HighestEpochRecord>) -> Vec<HighestEpochRecord> {
    let mut furthest: Vec<HighestEpochRecord> = Vec::new();
    for record in records {
        match furthest.iter_mut().find(|known| known.installation == record.installation) {
            Some(known) => {
                known.era = known.era.max(record.era);
                known.highest = known.highest.max(record.highest);
            }
            None => furthest.push(record),
        }
    }
    furthest
}

/// Reads all records. `None`: a file was removed meanwhile, and another one now has its content; read again.
fn try_read_records(folder: &Path) -> Result<Option<Vec<HighestEpochRecord>>, StateDirError> {
    let mut records = Vec::new();
    for name in list_process_guids(folder, RECORD)? {
        let path = folder.join(format!("{PREFIX}{name}{RECORD}"));
        match read_content(&path) {
            Ok(bytes) => records.push(parse_record(path, &bytes)?),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateDirError::Read { path, source }),
        }
    }
    Ok(Some(records))
}

/// Reads a record, which is one short line. A longer file is not a gateway's, and might have no end, so it is not read.
fn read_content(path: &Path) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    if !found.is_file() || found.len() > MAX_RECORD_LEN {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_RECORD_LEN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

const MAX_RECORD_LEN: u64 = 4096;

fn parse_record(path: PathBuf, bytes: &[u8]) -> Result<HighestEpochRecord, StateDirError> {
    HighestEpochRecord::parse(bytes).map_err(|why| match why {
        ParseInstallationRecordError::Newer(_) => StateDirError::Newer { path, why },
        ParseInstallationRecordError::Damaged(_) => StateDirError::Damaged { path, why },
    })
}

/// The names of the processes that have a file of this kind.
fn list_process_guids(folder: &Path, kind: &str) -> Result<Vec<Guid>, StateDirError> {
    let failed = |source| StateDirError::Read { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(kind));
        names.extend(name.and_then(Guid::parse));
    }
    Ok(names)
}

impl StateDir {
    /// Claims files in the folder, and reads the records of earlier processes. If all are of one installation, the
    /// highest is written into this process's record before any is removed. If they are of several, all stay until it
    /// is known which installation is served.
    ///
    /// # Errors
    /// Returns an error if a record cannot be parsed, or if this process's record cannot be written.
    pub(super) fn claim(
        path: &Path,
        randomness: &dyn Randomness,
    ) -> Result<(Self, Vec<HighestEpochRecord>), StateDirError> {
        let folder = Self::create_entry(path, randomness)?;
        let records = read_records(path)?;
        let only = if let [only] = &records[..] { Some(only) } else { None };
        if let Some(record) = only {
            let written = folder.write(record);
            written.map_err(|source| StateDirError::Write { path: path.to_owned(), source })?;
        }
        folder.remove_covered_records(only);
        Ok((folder, records))
    }

    fn create_entry(path: &Path, randomness: &dyn Randomness) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::Write { path: path.to_owned(), source };
        for _ in 0..MAX_ATTEMPTS {
            let name = Guid::new(randomness);
            let lock = path.join(format!("{PREFIX}{name}{LOCK}"));
            let file = OpenOptions::new().write(true).create_new(true).open(&lock).map_err(failed)?;
            // Before the lock was taken, another process may have removed the file as that of an ended process.
            if try_lock(&file).map_err(failed)? && is_same_file(&file, &lock) {
                return Ok(Self { path: path.to_owned(), name, _lock: file });
            }
        }
        Err(failed(io::Error::other("its files are taken away")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the record, which is durable on return. A crash leaves the old record or the new one, never a part.
    pub(super) fn write(&self, record: &HighestEpochRecord) -> io::Result<()> {
        let draft = self.file_path(DRAFT);
        let mut file = File::create(&draft)?;
        file.write_all(&record.to_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, self.file_path(RECORD))?;
        File::open(&self.path)?.sync_all()
    }

    fn file_path(&self, kind: &str) -> PathBuf {
        self.path.join(format!("{PREFIX}{}{kind}", self.name))
    }

    /// Removes the records of ended processes that `ours` covers.
    fn remove_covered_records(&self, ours: Option<&HighestEpochRecord>) {
        // The lock files are listed as well: a process that ended before it had a record has only that file.
        let all = [RECORD, LOCK].map(|kind| list_process_guids(&self.path, kind).unwrap_or_default());
        for name in all.into_iter().flatten() {
            if name != self.name
                && let Err(error) = remove_entry(&self.path, name, ours)
            {
                warn!(%error, folder = %self.path.display(), "a record of an ended process in `state_dir` could not be removed");
            }
        }
    }
}

fn remove_entry(folder: &Path, name: Guid, ours: Option<&HighestEpochRecord>) -> io::Result<()> {
    let file = |kind: &str| folder.join(format!("{PREFIX}{name}{kind}"));
    // The file is kept open, and so locked, until all files of its process are removed.
    let lock = match OpenOptions::new().write(true).open(file(LOCK)) {
        Ok(lock) if !try_lock(&lock)? => return Ok(()),
        Ok(lock) => Some(lock),
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // The process may have written after its record was read, so it is read again under its lock.
    let says_no_more = |record: HighestEpochRecord| {
        ours.is_some_and(|ours| record.is_covered_by(ours))
            || is_covered_by_other_record(folder, name, &record)
    };
    match read_content(&file(RECORD)) {
        Ok(bytes) if HighestEpochRecord::parse(&bytes).is_ok_and(says_no_more) => {
            fs::remove_file(file(RECORD))?
        }
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
        Ok(_) => return Ok(()),
        Err(error) => return Err(error),
    }
    drop(fs::remove_file(file(DRAFT)));
    drop(fs::remove_file(file(LOCK)));
    drop(lock);
    Ok(())
}

/// Whether another record that stays covers this one. Of equal records the one with the largest name stays, so two
/// processes that clean up at once agree.
fn is_covered_by_other_record(folder: &Path, name: Guid, record: &HighestEpochRecord) -> bool {
    let others =
        list_process_guids(folder, RECORD).unwrap_or_default().into_iter().filter(|other| *other != name);
    others.into_iter().any(|other| {
        let bytes = read_content(&folder.join(format!("{PREFIX}{other}{RECORD}"))).unwrap_or_default();
        HighestEpochRecord::parse(&bytes).is_ok_and(|theirs| {
            record.is_covered_by(&theirs) && (theirs != *record || other.to_string() > name.to_string())
        })
    })
}

/// Tries to lock the file, without waiting. True if it is locked now.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let of = |found: &fs::Metadata| (found.dev(), found.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(ours), Ok(theirs)) if of(&ours) == of(&theirs))
}

#[cfg(test)]
mod tests;
