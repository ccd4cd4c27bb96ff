//! `fencegate guard migrate`: moves the store of a guard from its file into a database, while the guard is stopped.

use std::{
    io,
    path::{self, PathBuf},
    process::ExitCode,
    str::FromStr,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use fencegate_config::store_config::{self, PostgresConfigError};
use fencegate_guard::GuardConfig;
use fencegate_guard_postgres::migration::{
    MigrationReport, MigrationState, StoreMigration, StoreMigrationError, StoreMigrationMode,
    StoreMigrationSummary,
};
use fencegate_policies::plan::GuardStoreLocation;
use fencegate_process::{display::FormattedDuration, randomness::SystemRandomness};
use serde::Serialize;

use super::{
    admin_client::CommandHintTarget,
    config,
    exit::USAGE,
    log::OutputFormat,
    out::{print_error, print_result},
    policy,
};

#[derive(Debug, Args)]
pub(super) struct MigrateGuardArgs {
    /// The file that the guards will be started with; it names the database as `store.postgres`.
    ///
    /// Unless given, that of $FENCEGATE_CONFIG, else /etc/fencegate/guard.yaml.
    #[arg(short = 'c', long = "config", value_name = "GUARD")]
    policy: Option<PathBuf>,
    /// The present store: `redb:` and the file that `store.redb` named. Its guard must be stopped.
    #[arg(long, value_name = "redb:FILE")]
    from: MigrationSource,
    /// The destination: the database that the guard's file names.
    #[arg(long, value_enum, value_name = "postgres", hide_possible_values = true)]
    to: MigrationTarget,
    /// Report what would be moved, and whether it could be. Changes nothing.
    #[arg(long)]
    dry_run: bool,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

/// The file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MigrationSource(PathBuf);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MigrationTarget {
    Postgres,
}

impl FromStr for MigrationSource {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("redb", file)) if !file.is_empty() => Ok(Self(file.into())),
            _ => Err("a store in a file is meant, as `redb:/var/lib/fencegate-guard/guard.redb`"),
        }
    }
}

/// The reason for which the verb failed.
#[derive(Debug, thiserror::Error)]
enum MigrateGuardError {
    #[error("cannot start the async runtime")]
    Runtime(#[from] io::Error),
    #[error(transparent)]
    NoPlace(#[from] PostgresConfigError),
    #[error(transparent)]
    NotMoved(#[from] StoreMigrationError),
}

/// The result, for people and programs.
#[derive(Debug, Serialize)]
struct MigrationSummary {
    from: String,
    to: String,
    /// `moved`, `finished`, `was-there`, or with `--dry-run` `would-move` and `would-finish`.
    outcome: &'static str,
    store: String,
    ensemble: String,
    keys: u64,
    floor: u64,
    highest: u64,
    era: u64,
    operations: u64,
    operations_unknown: u64,
    doubts: u64,
    longest_doubt_ms: u128,
    /// The number of keys that are closed at first; `null` if all are.
    closed_keys: Option<u64>,
    closed_ms: u128,
    took_ms: u128,
}

pub(super) fn run(arguments: &MigrateGuardArgs) -> Result<(), ExitCode> {
    let MigrationTarget::Postgres = arguments.to;
    let file = config::resolve_file(arguments.policy.as_deref(), CommandHintTarget::Guard)?;
    let plan = policy::read_guard_quietly(&file)?;
    let GuardStoreLocation::Postgres(from) = &plan.store else {
        print_error(format_args!(
            "error: {} names `store.redb`, and the store is to go into a database: write `store: {{postgres: {{url_file: \
             FILE}}}}` into it, or name another file with `-c`",
            file.display()
        ));
        return Err(ExitCode::from(USAGE));
    };
    print_result(migrate(arguments, GuardConfig::from_plan(&plan), || store_config::load_store_config(from)))
}

/// Moves the store and returns the text to print.
fn migrate(
    arguments: &MigrateGuardArgs,
    rules: GuardConfig,
    place: impl FnOnce() -> Result<fencegate_guard_postgres::postgres::PostgresConfig, PostgresConfigError>,
) -> Result<String, MigrateGuardError> {
    // The printed path is absolute, because its reader may be in another folder.
    let from = path::absolute(&arguments.from.0).unwrap_or_else(|_| arguments.from.0.clone());
    let whole = StoreMigration { from, target: place()?, config: rules };
    let intent = if arguments.dry_run { StoreMigrationMode::DryRun } else { StoreMigrationMode::Migrate };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    let moved = runtime.block_on(whole.run(intent, &SystemRandomness))?;
    let summary = MigrationSummary::new(&whole, &moved, intent, began.elapsed());
    Ok(match arguments.format {
        OutputFormat::Json => serde_json::to_string_pretty(&summary).expect("plain fields serialise"),
        OutputFormat::Text => summary.to_text(&moved.counts),
    })
}

impl MigrationSummary {
    fn new(
        whole: &StoreMigration,
        moved: &MigrationReport,
        intent: StoreMigrationMode,
        took: Duration,
    ) -> Self {
        let MigrationReport { identity, state: left_to_do, counts: tally } = moved;
        Self {
            from: whole.from.display().to_string(),
            to: whole.target.to_string(),
            outcome: match (left_to_do, intent) {
                (MigrationState::NotStarted, StoreMigrationMode::DryRun) => "would-move",
                (MigrationState::LastStep, StoreMigrationMode::DryRun) => "would-finish",
                (MigrationState::NotStarted, StoreMigrationMode::Migrate) => "moved",
                (MigrationState::LastStep, StoreMigrationMode::Migrate) => "finished",
                (MigrationState::Done, _) => "was-there",
            },
            store: identity.store.clone(),
            ensemble: identity.ensemble.clone(),
            keys: tally.keys,
            floor: tally.floor,
            highest: tally.highest,
            era: tally.era,
            operations: tally.operations,
            operations_unknown: tally.unknown,
            doubts: tally.doubts,
            longest_doubt_ms: tally.longest_doubt.as_millis(),
            closed_keys: (!tally.every_key).then_some(tally.closed_keys),
            closed_ms: tally.closed.as_millis(),
            took_ms: took.as_millis(),
        }
    }

    fn to_text(&self, tally: &StoreMigrationSummary) -> String {
        let Self { from, to, store, ensemble, keys, floor, highest, era, operations, .. } = self;
        let first = match self.outcome {
            "would-move" => format!("{from} would be moved into {to}. Nothing was changed."),
            "would-finish" => {
                format!("{from} was copied into {to}, which would become the store. Nothing was changed.")
            }
            "moved" => format!("{from} was moved into {to}."),
            "finished" => format!("{from} had been copied into {to}, which is the store now."),
            _ => format!("{from} was moved into {to} already. There is nothing to do."),
        };
        let last = match self.outcome {
            "would-move" | "would-finish" => {
                "Run it without `--dry-run` while the guard is stopped.".to_owned()
            }
            _ => format!(
                "Start the guards with this file. No guard opens {from} any more; remove it when they run."
            ),
        };
        let took = Duration::from_millis(u64::try_from(self.took_ms).unwrap_or(u64::MAX));
        format!(
            "{first}\n\
             store       {store}, for tokens of installation {ensemble}\n\
             keys        {keys}, tokens up to epoch {highest}, floor {floor}, era {era}\n\
             operations  {operations}, of which {} have an unknown outcome\n\
             doubts      {}{}\n\
             closed      {}\n\
             took        {}\n\
             {last}",
            tally.unknown,
            tally.doubts,
            if tally.doubts > 0 {
                format!(
                    ", the last ends {} after the first guard is there",
                    FormattedDuration(tally.longest_doubt)
                )
            } else {
                String::new()
            },
            quarantined_keys_text(tally),
            FormattedDuration(took),
        )
    }
}

fn quarantined_keys_text(tally: &StoreMigrationSummary) -> String {
    let time = FormattedDuration(tally.closed);
    match tally {
        StoreMigrationSummary { closed: Duration::ZERO, .. } => {
            "nothing: the guard was stopped in order".to_owned()
        }
        StoreMigrationSummary { every_key: true, .. } => {
            format!("every key for {time}: nobody knows which ones were at work")
        }
        StoreMigrationSummary { closed_keys, .. } => {
            format!("{closed_keys} keys for {time}: they may have been at work when the guard was killed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_store_requires_redb_prefix() {
        assert_eq!("redb:/a/b.redb".parse(), Ok(MigrationSource("/a/b.redb".into())));
        for bad in ["redb", "redb:", "/a/b.redb", "postgres:/a", "guard.redb"] {
            assert!(bad.parse::<MigrationSource>().is_err(), "{bad}");
        }
    }
}
