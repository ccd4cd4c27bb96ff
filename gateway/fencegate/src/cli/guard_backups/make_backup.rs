//! Makes a backup, from a running guard or from the store file of a stopped one.

use std::{io::Write as _, path::Path, process::ExitCode, time::Duration};

use fencegate_guard_store::store::{GuardStore as _, RedbStore, backup::BackupHeader};
use fencegate_policies::plan;

use super::{args::BackupArgs, error::BackupCommandError, render};
use crate::{
    backups::atomic_file::{AtomicBackupFile, OverwritePolicy, WriteBackupError},
    cli::{
        admin_client::{self, AdminClient, CommandHintTarget},
        config, out, policy,
    },
};

/// The time limit for each part of the response with a backup.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(making: &BackupArgs) -> Result<(), ExitCode> {
    let made = match making.offline {
        true => {
            let file = config::resolve_file(making.guard.place.file(), CommandHintTarget::Guard)?;
            let plan::GuardPlan { store, .. } = policy::read_guard_quietly(&file)?;
            backup_store_file(&store, making)
        }
        false => {
            let found = making.guard.place.resolve(CommandHintTarget::Guard)?;
            admin_client::with_client(&found, CommandHintTarget::Guard, async |guard| {
                Ok(backup_running(guard, making).await)
            })
            .map_err(BackupCommandError::from)
            .and_then(|made| made)
        }
    };
    let header = made.map_err(|error| out::report_error(&error))?;
    out::print_text(render::backup_text(&making.file, &header, making.guard.format))
}

async fn backup_running(
    guard: &mut AdminClient,
    making: &BackupArgs,
) -> Result<BackupHeader, BackupCommandError> {
    // The file is made first, so that the guard does not begin to send a backup that cannot be stored.
    let mut file = create_file(making)?;
    let mut backup = guard.post_stream("/api/v1/backup").await?;
    while let Some(part) = backup.next_chunk(PATIENCE).await.map_err(|error| guard.no_answer_error(error))? {
        file.write_all(&part).map_err(|error| WriteBackupError::io(&making.file, error))?;
    }
    Ok(file.finish()?)
}

fn backup_store_file(
    store: &plan::GuardStoreLocation,
    making: &BackupArgs,
) -> Result<BackupHeader, BackupCommandError> {
    let plan::GuardStoreLocation::Redb(path) = store else {
        return Err(BackupCommandError::Shared(
            "`pg_dump`, or the archive of its write-ahead log, backs it up",
        ));
    };
    let mut file = create_file(making)?;
    let store = RedbStore::open(Path::new(path))?;
    store.write_backup(&mut file).map_err(|not| BackupCommandError::from_copy_error(&making.file, not))?;
    Ok(file.finish()?)
}

fn create_file(making: &BackupArgs) -> Result<AtomicBackupFile, WriteBackupError> {
    let existing = if making.overwrite { OverwritePolicy::Replace } else { OverwritePolicy::Keep };
    AtomicBackupFile::begin(&making.file, existing)
}
