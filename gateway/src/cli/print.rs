//! What is only printed: starter files, schemas, completions for shells, the manual page.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::ValueEnum;

use super::{command, told};

/// A file that works after its addresses have been changed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Starter {
    /// A gateway before a service with a guard; captures happen at most once.
    Payments,
    /// A gateway before a service that compares tokens; readers beside writers, two keys at once.
    Inventory,
    /// A gateway before the services of many tenants, told apart by host; values from the environment.
    MultiTenant,
    /// The guard beside the payment service.
    Guard,
}

impl Starter {
    /// The examples themselves: they are tested, and nobody has to keep a second text current.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Payments => include_str!("../../../policies/examples/payments.yaml"),
            Self::Inventory => include_str!("../../../policies/examples/inventory.yaml"),
            Self::MultiTenant => include_str!("../../../policies/examples/multi-tenant.yaml"),
            Self::Guard => include_str!("../../../policies/examples/guard.yaml"),
        }
    }
}

/// A test of the policies keeps it to what their reader asks for.
pub(super) fn schema(guard: bool) -> &'static str {
    match guard {
        false => include_str!("../../../policies/schema.json"),
        true => include_str!("../../../policies/schema.guard.json"),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn completions(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "fencegate", &mut script);
    script
}

/// The manual page of the command; those of its verbs are what `--help` says.
pub(super) fn manual() -> Vec<u8> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command()).render(&mut page).expect("memory takes every byte");
    page
}

/// A reader that has seen enough, such as `head`, is no trouble.
pub(super) fn print(text: &[u8]) -> Result<(), ExitCode> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(told(&error)),
        _ => Ok(()),
    }
}
