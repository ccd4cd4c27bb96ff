//! `fencegate guard`: runs one, or asks a running one for an operator what is unknown, and says what came of it.

mod ask;
mod text;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{
    admin::{Of, Place},
    config, cores, ended,
    log::Format,
    policy, said,
};
use crate::serve::guard;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Arguments {
    /// The guard's file; unless given, that of $FENCEGATE_CONFIG, else /etc/fencegate/guard.yaml.
    #[arg(short = 'c', long = "config", value_name = "GUARD")]
    policy: Option<PathBuf>,
    /// Make the store. `fencegate era show` prints what to give.
    #[arg(long, requires_all = ["floor", "ensemble"])]
    init: bool,
    /// With `--init`: no token up to this epoch passes.
    #[arg(long, value_name = "E", requires = "init")]
    floor: Option<u64>,
    /// With `--init`: the installation whose tokens are compared.
    #[arg(long, value_name = "UUID", requires = "init")]
    ensemble: Option<String>,
    /// Worker threads; one per core unless given.
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What a running guard is asked, or told.
#[derive(Debug, Subcommand)]
enum Verb {
    /// List requests whose outcome is unknown; or tell what is known of one operation or key.
    Show {
        /// The reference of an operation, the token of an execution, or a key. All that is unknown unless given.
        #[arg(value_name = "REF|KEY")]
        about: Option<String>,
        #[command(flatten)]
        guard: Running,
    },
    /// Say what came of an operation. A repeat is told that it was done; one that was not done may run.
    Resolve {
        /// The reference of the operation, or the token of the execution, as `show` prints it.
        #[arg(value_name = "REF")]
        reference: String,
        /// What came of it. Only the upstream's own records tell.
        #[arg(long = "as", value_enum, value_name = "OUTCOME")]
        outcome: Outcome,
        #[command(flatten)]
        guard: Running,
    },
    /// Forget a finished operation with its kept answer. A repeat of it will run again.
    Forget {
        /// The reference of the operation.
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        guard: Running,
    },
}

/// Which guard is meant, and how its answer is shown.
#[derive(Debug, Args)]
struct Running {
    #[command(flatten)]
    place: Place,
    /// How it is printed; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What came of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// It took effect.
    Done,
    /// It did not, and never will.
    NotDone,
}

pub(super) fn run(arguments: Arguments) -> Result<(), ExitCode> {
    let Arguments { policy, floor, ensemble, workers, verb, .. } = arguments;
    let Some(verb) = verb else {
        let plan = policy::read_guard(&config::served(policy.as_deref(), Of::Guard)?)?;
        let workers = workers.unwrap_or_else(cores);
        let init = floor.zip(ensemble).map(|(floor, ensemble)| guard::Init { floor, ensemble });
        return guard::run(&plan, &guard::Options { init, workers }).map_err(|trouble| ended(&trouble));
    };
    let found = verb.guard().place.found(Of::Guard)?;
    said(ask::run(&verb, &found))
}

impl Verb {
    fn guard(&self) -> &Running {
        let (Self::Show { guard, .. } | Self::Resolve { guard, .. } | Self::Forget { guard, .. }) = self;
        guard
    }
}
