//! The arguments with which an operator queries a running guard, and resolves its operations.

use clap::{Args, Subcommand};
use fencegate_admin::extract::ResolvedOutcome;

use crate::cli::{admin_client::AdminTargetArgs, log::OutputFormat};

/// The questions and orders of an operator for a running guard.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum OutcomesCommand {
    /// List requests whose outcome is unknown, or show one operation or key.
    Show {
        /// The reference of an operation, the token of an execution, or a key. All that is unknown unless given.
        #[arg(value_name = "REF|KEY")]
        about: Option<String>,
        #[command(flatten)]
        guard: RunningGuardArgs,
    },
    /// Record the outcome of an operation. If it was done, a repeat is told so; if it was not done, a repeat may run.
    Resolve {
        /// The reference of the operation, or the token of the execution, as `show` prints it.
        #[arg(value_name = "REF")]
        reference: String,
        /// The outcome. Only the upstream's own records tell it.
        #[arg(long = "as", value_enum, value_name = "OUTCOME")]
        outcome: ResolvedOutcome,
        /// Resolve it as not done although the request may still be begun.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        guard: RunningGuardArgs,
    },
    /// Forget a finished operation with its kept answer. A repeat of it will run again.
    Forget {
        /// The reference of the operation.
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        guard: RunningGuardArgs,
    },
}

/// The guard to ask, and the form of the output.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunningGuardArgs {
    #[command(flatten)]
    pub(in crate::cli) place: AdminTargetArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    pub(in crate::cli) format: OutputFormat,
}

impl OutcomesCommand {
    pub(in crate::cli) fn guard_args(&self) -> &RunningGuardArgs {
        let (Self::Show { guard, .. } | Self::Resolve { guard, .. } | Self::Forget { guard, .. }) = self;
        guard
    }
}
