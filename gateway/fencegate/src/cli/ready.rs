//! `fencegate ready` and `fencegate guard ready`: whether a running process could do its work now, told by the exit code.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use hyper::StatusCode;
use serde_json::json;

use super::{
    admin::{AdminAddress, Of, Trouble, ask},
    exit::{RUNTIME, UNREACHABLE},
    log::Format,
    out::{failed, say},
};

/// What it ends with.
pub(super) const CODES: &str = "\
Exit codes: 0 it is ready; 1 it is not, and stdout says why; 2 the command line makes no sense; 69 nobody answers there, or \
somebody else does; 74 stdout could not be written; 78 the file has errors.";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub(super) struct Readiness {
    #[command(flatten)]
    place: AdminAddress,
    /// Who has not answered after this time is not there: `5s`.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    within: Duration,
    /// How it is printed; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What the process says of itself.
struct Condition {
    ready: bool,
    /// Why not; or what else there is to say.
    says: String,
}

pub(super) fn run(asked: &Readiness, of: Of) -> Result<(), ExitCode> {
    let found = asked.place.found(of)?.without_token();
    let told = ask(&found, of, async |process| {
        let answer = process.get_for("/ready", asked.within).await?;
        let says = answer.body.as_str().unwrap_or_default().trim_end().to_owned();
        match answer.status {
            StatusCode::OK if says.starts_with("ready") => Ok(Condition { ready: true, says }),
            StatusCode::SERVICE_UNAVAILABLE if !says.is_empty() => Ok(Condition { ready: false, says }),
            _ => Err(process.another()),
        }
    });
    let condition = told.map_err(|trouble| match trouble {
        Trouble::Runtime(_) => failed(&trouble),
        unreached => {
            failed(&unreached);
            ExitCode::from(UNREACHABLE)
        }
    })?;
    let Condition { ready, says } = &condition;
    say(match asked.format {
        Format::Json => json!({ "ready": ready, "says": says }).to_string(),
        Format::Text if *ready => says.clone(),
        Format::Text => format!("not ready: {says}"),
    })?;
    if *ready { Ok(()) } else { Err(ExitCode::from(RUNTIME)) }
}
