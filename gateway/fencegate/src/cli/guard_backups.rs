//! `fencegate guard backup` and `guard restore`: copy the store of a guard to a file, and make a store from it.

mod args;
mod error;
mod make_backup;
mod render;
mod restore_backup;

use std::process::ExitCode;

pub(super) use self::args::BackupCommand;

pub(super) fn run(verb: &BackupCommand) -> Result<(), ExitCode> {
    match verb {
        BackupCommand::Backup(making) => make_backup::run(making),
        BackupCommand::Restore(restoring) => restore_backup::run(restoring),
    }
}
