//! What can be done with backups.

use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};

use crate::cli::{log::Format, outcomes::RunningGuard};

/// What is done with backups.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BackupVerb {
    /// Write what a guard remembers into a file, while it runs: marks, floor, and the journal of operations.
    Backup(Making),
    /// Make the store of a guard from a backup. Nothing that came after it is known: read what is printed.
    Restore(Restoring),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Making {
    /// The backup. It is there as a whole or not at all, and only whoever made it can read it.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// In the place of one that is there already.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Of a guard that does not run: read the store that its file names.
    #[arg(long, conflicts_with_all = ["admin", "token_file"])]
    pub(super) offline: bool,
    #[command(flatten)]
    pub(super) guard: RunningGuard,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Restoring {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub(super) backup: PathBuf,
    /// The guard's file, which names the place of the store; else that of $FENCEGATE_CONFIG, else
    /// /etc/fencegate/guard.yaml.
    #[arg(short = 'c', long = "config", value_name = "GUARD")]
    pub(super) config: Option<PathBuf>,
    /// The policy of a gateway, which names the ZooKeeper that is asked how far tokens have come; else
    /// /etc/fencegate/policy.yaml.
    #[arg(long, value_name = "POLICY")]
    pub(super) policy: Option<PathBuf>,
    /// Where ZooKeeper cannot be reached from here: the floor that `era show` prints once the old guard has ended.
    #[arg(long, value_name = "E", conflicts_with = "policy", value_parser = value_parser!(u64).range(..1 << 63))]
    pub(super) floor: Option<u64>,
    /// A store that is there already is moved aside. Its guard must not run.
    #[arg(long)]
    pub(super) replace: bool,
    /// How it is printed; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}
