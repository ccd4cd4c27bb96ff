//! Makes a backup, from a running guard or from the store file of a stopped one.

use std::{io::Write as _, path::Path, process::ExitCode, time::Duration};

use fencegate_guard::store::{Redb, Store as _, backup::Header};
use fencegate_policies::plan;

use super::{backup_verb::Making, failure::BackupTrouble, wording};
use crate::{
    backups::new_file::{Existing, NewFile, NotWritten},
    cli::{
        admin::{self, Asker, Of},
        config, out, policy,
    },
};

/// The time limit for each part of the backup.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(making: &Making) -> Result<(), ExitCode> {
    let made = match making.offline {
        true => {
            let file = config::file(making.guard.place.file(), Of::Guard)?;
            let plan::Guard { store, .. } = policy::read_guard_quietly(&file)?;
            of_file(&store, making)
        }
        false => {
            let found = making.guard.place.found(Of::Guard)?;
            admin::ask(&found, Of::Guard, async |guard| Ok(of_running(guard, making).await))
                .map_err(BackupTrouble::from)
                .and_then(|made| made)
        }
    };
    let header = made.map_err(|trouble| out::failed(&trouble))?;
    out::say(wording::backed_up(&making.file, &header, making.guard.format))
}

async fn of_running(guard: &mut Asker, making: &Making) -> Result<Header, BackupTrouble> {
    // Before the guard is asked: it would begin to read.
    let mut file = begun(making)?;
    let mut backup = guard.post_for_stream("/api/v1/backup").await?;
    while let Some(part) = backup.next(PATIENCE).await.map_err(|why| guard.unanswered(why))? {
        file.write_all(&part).map_err(|error| NotWritten::io(&making.file, error))?;
    }
    Ok(file.finish()?)
}

fn of_file(store: &plan::Store, making: &Making) -> Result<Header, BackupTrouble> {
    let plan::Store::Redb(path) = store else {
        return Err(BackupTrouble::Shared("`pg_dump`, or the archive of its write-ahead log, backs it up"));
    };
    let mut file = begun(making)?;
    let store = Redb::open(Path::new(path))?;
    store.copy(&mut file).map_err(|not| BackupTrouble::copied(&making.file, not))?;
    Ok(file.finish()?)
}

fn begun(making: &Making) -> Result<NewFile, NotWritten> {
    let existing = if making.overwrite { Existing::Replaced } else { Existing::Kept };
    NewFile::begin(&making.file, existing)
}
