//! What a running guard can be asked by an operator.

use clap::{Args, Subcommand};

use crate::{
    admin::input::ResolvedAs,
    cli::{admin::AdminAddress, log::Format},
};

/// What a running guard is asked, or told.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Verb {
    /// List requests whose outcome is unknown; or tell what is known of one operation or key.
    Show {
        /// The reference of an operation, the token of an execution, or a key. All that is unknown unless given.
        #[arg(value_name = "REF|KEY")]
        about: Option<String>,
        #[command(flatten)]
        guard: RunningGuard,
    },
    /// Say what came of an operation. A repeat is told that it was done; one that was not done may run.
    Resolve {
        /// The reference of the operation, or the token of the execution, as `show` prints it.
        #[arg(value_name = "REF")]
        reference: String,
        /// What came of it. Only the upstream's own records tell.
        #[arg(long = "as", value_enum, value_name = "OUTCOME")]
        outcome: ResolvedAs,
        #[command(flatten)]
        guard: RunningGuard,
    },
    /// Forget a finished operation with its kept answer. A repeat of it will run again.
    Forget {
        /// The reference of the operation.
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        guard: RunningGuard,
    },
}

/// Which guard is meant, and how its answer is shown.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunningGuard {
    #[command(flatten)]
    pub(in crate::cli) place: AdminAddress,
    /// How it is printed; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(in crate::cli) format: Format,
}

impl Verb {
    pub(in crate::cli) fn running(&self) -> &RunningGuard {
        let (Self::Show { guard, .. } | Self::Resolve { guard, .. } | Self::Forget { guard, .. }) = self;
        guard
    }
}
