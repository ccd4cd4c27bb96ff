//! The verbs for backups.

use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};

use crate::cli::{log::OutputFormat, outcomes::RunningGuardArgs};

/// The verbs for backups.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BackupCommand {
    /// Write the store of a running guard into a file: marks, floor, and the journal of operations.
    Backup(BackupArgs),
    /// Make the store of a guard from a backup. The new store lacks everything that came after the backup: read the
    /// output.
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct BackupArgs {
    /// The backup file. It is complete or absent, and only its owner can read it.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Read the store of a guard that does not run, as its file names it.
    #[arg(long, conflicts_with_all = ["admin", "token_file"])]
    pub(super) offline: bool,
    #[command(flatten)]
    pub(super) guard: RunningGuardArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub(super) backup: PathBuf,
    /// The guard's file, which names the place of the store. Default: $FENCEGATE_CONFIG, else
    /// /etc/fencegate/guard.yaml.
    #[arg(short = 'c', long = "config", value_name = "GUARD")]
    pub(super) config: Option<PathBuf>,
    /// The policy of a gateway. It names the ZooKeeper that knows how far tokens have come. Default:
    /// /etc/fencegate/policy.yaml.
    #[arg(long, value_name = "POLICY")]
    pub(super) policy: Option<PathBuf>,
    /// Use this floor, where ZooKeeper cannot be reached. `era show` prints it once the old guard has ended.
    #[arg(long, value_name = "E", conflicts_with = "policy", value_parser = value_parser!(u64).range(..1 << 63))]
    pub(super) floor: Option<u64>,
    /// Move an existing store aside. Its guard must not run.
    #[arg(long)]
    pub(super) replace: bool,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    pub(super) format: OutputFormat,
}
