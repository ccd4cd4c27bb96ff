//! The texts about backups and restored stores. For a restore they list what it loses.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_guard_store::store::{RestoreOptions, backup::BackupHeader};
use serde_json::json;

use crate::cli::{log::OutputFormat, out::format_unix_seconds_and_age};

/// The result of a restore.
pub(super) struct GuardRestoreOutcome {
    pub(super) path: PathBuf,
    pub(super) backup: PathBuf,
    /// The description of the backup.
    pub(super) header: BackupHeader,
    pub(super) restored: RestoreOptions,
    /// The path to which the old store was moved, if there was one.
    pub(super) aside: Option<PathBuf>,
    /// The time for which the guard admits nothing after its first start.
    pub(super) closed_for: Duration,
}

pub(super) fn backup_text(file: &Path, header: &BackupHeader, format: OutputFormat) -> String {
    let BackupHeader { identity, taken, highest, marks, operations, .. } = header;
    match format {
        OutputFormat::Json => format!(
            "{:#}",
            json!({
                "backup": file, "store": identity.store, "ensemble": identity.ensemble, "taken": taken,
                "highest": highest, "keys": marks, "operations": operations,
            })
        ),
        OutputFormat::Text => format!(
            "{}: store {}, {marks} keys, {operations} operations, tokens up to {highest}\n\
             Kept answers are in it: keep it from others. What comes later is not in it, and a restore cannot know it.",
            file.display(),
            identity.store,
        ),
    }
}

pub(super) fn restore_text(outcome: &GuardRestoreOutcome, format: OutputFormat) -> String {
    let GuardRestoreOutcome { path, header, restored, aside, closed_for, .. } = outcome;
    match format {
        OutputFormat::Json => format!(
            "{:#}",
            json!({
                "path": path, "store": restored.store, "was": header.identity.store, "floor": restored.floor,
                "taken": header.taken, "operations": header.operations, "moved_aside": aside,
                "closed_for_ms": u64::try_from(closed_for.as_millis()).unwrap_or(u64::MAX),
            })
        ),
        OutputFormat::Text => describe(outcome),
    }
}

fn describe(outcome: &GuardRestoreOutcome) -> String {
    let GuardRestoreOutcome { path, backup, header, restored, aside, closed_for } = outcome;
    let aside = aside.as_ref().map(|aside| format!("moved aside  {}\n", aside.display()));
    format!(
        "{}: made of {}\n\
         store        {}   (it was {})\n\
         backed up    {}\n\
         floor        {}   (no token up to here passes; whoever holds one gets a newer one by itself)\n\
         operations   {}   (repeats of them are answered as before)\n\
         {}\
         \n\
         What nobody knows any more: operations of `once` that were done after the backup. A repeat of one of them is\n\
         CARRIED OUT AGAIN, and no guard can tell it from a new one. Before the guard lets requests in, have clients stop\n\
         repeating, or compare the service's own records since {} with what clients will repeat.\n\
         \n\
         No other guard may go on with the store that this replaces: what it lets in from now on is not known here.\n\
         After its first start the guard lets nothing in for {}: what was sent before may still run.",
        path.display(),
        backup.display(),
        restored.store,
        header.identity.store,
        format_unix_seconds_and_age(header.taken),
        restored.floor,
        header.operations,
        aside.unwrap_or_default(),
        format_unix_seconds_and_age(header.taken),
        humantime::format_duration(*closed_for),
    )
}
