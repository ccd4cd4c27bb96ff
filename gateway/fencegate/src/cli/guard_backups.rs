//! `fencegate guard backup` and `guard restore`: copy the store of a guard to a file, and make a store from it.

mod backup_verb;
mod failure;
mod make_backup;
mod restore_backup;
mod wording;

use std::process::ExitCode;

pub(super) use self::backup_verb::BackupCommand;

pub(super) fn run(verb: &BackupCommand) -> Result<(), ExitCode> {
    match verb {
        BackupCommand::Backup(making) => make_backup::run(making),
        BackupCommand::Restore(restoring) => restore_backup::run(restoring),
    }
}
