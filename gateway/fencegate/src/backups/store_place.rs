//! Where a store is made of a backup: nothing is at work there, and what was there is moved aside and not removed.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
};

use fencegate_guard::store::{NotRestored, Redb, Restored, Store as _, backup::Header};
use tempfile::TempPath;

use super::new_file::{Existing, folder, synced_folder};

/// The place of a store. As long as this is there, no guard starts on what is in it.
pub struct StorePlace {
    path: PathBuf,
    old: Option<Replaced>,
}

/// A store that is to be moved aside.
struct Replaced {
    /// Held as a guard holds it.
    file: File,
    /// The largest epoch that it knows, where it can still be read.
    highest: u64,
}

/// No store was made; what was there is still there.
#[derive(Debug, thiserror::Error)]
pub enum NotMade {
    #[error(
        "FG0614: {path} is there already; `--replace` moves it aside, once it is sure that its guard does not run anywhere"
    )]
    Exists { path: String },
    #[error("FG0614: a guard, or another command, is at work on {path}; stop it first")]
    AtWork { path: String },
    #[error("FG0614: {path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("FG0615: the floor {floor} is below {highest}, which the store at {path} has let in")]
    Floor { floor: u64, highest: u64, path: String },
    #[error("FG0615: {0}")]
    BelowBackup(NotRestored),
    #[error("FG0611: {backup}: {source}")]
    Broken { backup: String, source: NotRestored },
    #[error("FG0614: make {path}: {source}")]
    Store { path: String, source: NotRestored },
}

impl StorePlace {
    /// # Errors
    /// There is a store already that is to be kept, or one that somebody is at work on.
    pub fn take(path: &Path, existing: Existing) -> Result<Self, NotMade> {
        let path = path.to_owned();
        if path.symlink_metadata().is_err() {
            return Ok(Self { path, old: None });
        }
        let name = || path.display().to_string();
        if existing == Existing::Kept {
            return Err(NotMade::Exists { path: name() });
        }
        let failed = |source| NotMade::Io { path: name(), source };
        let file = File::open(&path).map_err(failed)?;
        // Where it is damaged nothing can be read of it, and that is no reason to keep it.
        let known = at_rest(&file, &path)
            .and_then(|()| file.unlock().map_err(failed))
            .map(|()| Redb::open(&path).ok().and_then(|store| store.copy(&mut io::sink()).ok()))?;
        at_rest(&file, &path)?;
        let highest = known.map_or(0, |header| header.highest);
        Ok(Self { path, old: Some(Replaced { file, highest }) })
    }

    /// Makes the store. It is at its place when this returns.
    ///
    /// # Errors
    /// The backup is not whole, or the floor is below what is known here.
    pub fn restore(self, backup: &Path, restored: &Restored) -> Result<MadeStore, NotMade> {
        let name = self.path.display().to_string();
        if let Some(Replaced { highest, .. }) = &self.old
            && restored.floor < *highest
        {
            return Err(NotMade::Floor { floor: restored.floor, highest: *highest, path: name });
        }
        let failed = |source| NotMade::Io { path: name.clone(), source };
        let new = self.unfinished()?;
        let header = Redb::restore(&new, backup, restored).map_err(|source| match source {
            NotRestored::Floor { .. } => NotMade::BelowBackup(source),
            NotRestored::Backup(_) => NotMade::Broken { backup: backup.display().to_string(), source },
            NotRestored::Store(_) => NotMade::Store { path: name.clone(), source },
        })?;
        self.owned(&new).map_err(failed)?;
        let aside = self.put_aside().map_err(failed)?;
        if let Err(failure) = new.persist_noclobber(&self.path) {
            // What was there comes back. Where that fails as well, it is under its other name.
            aside.iter().for_each(|aside| drop(fs::rename(aside, &self.path)));
            return Err(failed(failure.error));
        }
        synced_folder(&self.path).map_err(failed)?;
        Ok(MadeStore { header, aside })
    }

    /// The name under which the store is made. What a command has left there that was killed is removed.
    fn unfinished(&self) -> Result<TempPath, NotMade> {
        let path = beside(&self.path, "restoring");
        let failed = |source| NotMade::Io { path: path.display().to_string(), source };
        match File::open(&path) {
            Ok(file) => {
                at_rest(&file, &path)?;
                fs::remove_file(&path).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        TempPath::try_from_path(&path).map_err(failed)
    }

    /// Whoever has the folder runs the guard, and whoever restores may be root.
    fn owned(&self, new: &Path) -> io::Result<()> {
        let of = match &self.old {
            Some(old) => old.file.metadata()?,
            None => folder(&self.path).metadata()?,
        };
        let is = new.metadata()?;
        if (is.uid(), is.gid()) == (of.uid(), of.gid()) {
            return Ok(());
        }
        chown(new, Some(of.uid()), Some(of.gid()))
    }

    fn put_aside(&self) -> io::Result<Option<PathBuf>> {
        if self.old.is_none() {
            return Ok(None);
        }
        for number in 1.. {
            let aside = beside(&self.path, &format!("replaced-{number}"));
            if aside.symlink_metadata().is_err() {
                fs::rename(&self.path, &aside)?;
                return Ok(Some(aside));
            }
        }
        unreachable!("no folder has so many names")
    }
}

/// A store that was made of a backup.
#[derive(Debug)]
pub struct MadeStore {
    /// What the backup says of itself.
    pub header: Header,
    /// Where the store is now that was there before.
    pub aside: Option<PathBuf>,
}

/// Nobody else has it open for a store. From then on nobody can, until the lock is given back.
fn at_rest(file: &File, path: &Path) -> Result<(), NotMade> {
    file.try_lock().map_err(|error| {
        let path = path.display().to_string();
        match error {
            TryLockError::WouldBlock => NotMade::AtWork { path },
            TryLockError::Error(source) => NotMade::Io { path, source },
        }
    })
}

fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}
