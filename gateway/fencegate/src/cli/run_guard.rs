//! `fencegate guard`: runs a guard, and has the verbs for running guards and their stores.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, value_parser};
use fencegate_serve::{guard_process, worker_pool::default_workers};

use super::{
    admin_client::CommandHintTarget,
    config, guard_backups,
    migrate_guard::{self, MigrateGuardArgs},
    out::{log_error, print_result},
    outcomes, policy, ready,
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct GuardArgs {
    /// The guard's file. Default: $FENCEGATE_CONFIG, else /etc/fencegate/guard.yaml.
    #[arg(short = 'c', long = "config", value_name = "GUARD")]
    policy: Option<PathBuf>,
    /// Make the store. `fencegate era show` prints the values for the next two options.
    #[arg(long, requires_all = ["floor", "ensemble"])]
    init: bool,
    /// With `--init`: the guard lets in no token up to this epoch.
    #[arg(long, value_name = "E", requires = "init", value_parser = value_parser!(u64).range(..1 << 63))]
    floor: Option<u64>,
    /// With `--init`: the installation whose tokens the guard compares.
    #[arg(long, value_name = "UUID", requires = "init")]
    ensemble: Option<String>,
    /// The number of worker threads. Default: one per core.
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    #[command(subcommand)]
    verb: Option<GuardCommand>,
}

#[derive(Debug, Subcommand)]
enum GuardCommand {
    /// Tell by the exit code whether a running guard could let a request in now.
    Ready(ready::ReadyArgs),
    #[command(flatten)]
    Outcomes(outcomes::OutcomesCommand),
    #[command(flatten)]
    Backups(guard_backups::BackupCommand),
    /// Move the store of a guard that is stopped from its file into a database, for several guards.
    Migrate(MigrateGuardArgs),
}

impl GuardArgs {
    /// True if the process becomes a guard. The other verbs query a guard or change its store.
    pub(super) fn is_server(&self) -> bool {
        self.verb.is_none()
    }
}

pub(super) fn run(arguments: GuardArgs) -> Result<(), ExitCode> {
    let GuardArgs { policy, floor, ensemble, workers, verb, .. } = arguments;
    let Some(verb) = verb else {
        let plan = policy::read_guard(&config::absolute_file(policy.as_deref(), CommandHintTarget::Guard)?)?;
        let workers = workers.unwrap_or_else(default_workers);
        let init =
            floor.zip(ensemble).map(|(floor, ensemble)| guard_process::NewStoreParams { floor, ensemble });
        return guard_process::run(&plan, &guard_process::GuardOptions { init, workers })
            .map_err(|error| log_error(&error));
    };
    match verb {
        GuardCommand::Ready(arguments) => ready::run(&arguments, CommandHintTarget::Guard),
        GuardCommand::Outcomes(verb) => {
            let found = verb.guard_args().place.resolve(CommandHintTarget::Guard)?;
            print_result(outcomes::ask(&verb, &found))
        }
        GuardCommand::Backups(verb) => guard_backups::run(&verb),
        GuardCommand::Migrate(migration) => migrate_guard::run(&migration),
    }
}
