//! `fencegate ready` and `fencegate guard ready`: tell by the exit code whether a running process can do its work
//! now.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use hyper::StatusCode;
use serde_json::json;

use super::{
    admin_client::{AdminClientError, AdminTargetArgs, CommandHintTarget, with_client},
    exit::{RUNTIME, UNREACHABLE},
    log::OutputFormat,
    out::{print_text, report_error},
};

/// The exit codes.
pub(super) const CODES: &str = "\
Exit codes: 0 it is ready; 1 it is not, and stdout says why; 2 the command line makes no sense; 69 nobody answers there, or \
somebody else does; 74 stdout could not be written; 78 the file has errors.";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub(super) struct ReadyArgs {
    #[command(flatten)]
    place: AdminTargetArgs,
    /// The longest wait for the process, such as `5s`; --timeout says the same.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    within: Duration,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

/// The report of the process about its readiness.
struct ReadinessReport {
    ready: bool,
    /// The reason for which the process is not ready; further facts if it is ready.
    says: String,
}

pub(super) fn run(arguments: &ReadyArgs, of: CommandHintTarget) -> Result<(), ExitCode> {
    let found = arguments.place.resolve(of)?.without_token();
    let patience = found.timeout.unwrap_or(arguments.within);
    let result = with_client(&found, of, async |process| {
        let answer = process.get_response("/ready", patience).await?;
        let says = answer.body.as_str().unwrap_or_default().trim_end().to_owned();
        match answer.status {
            StatusCode::OK if says.starts_with("ready") => Ok(ReadinessReport { ready: true, says }),
            StatusCode::SERVICE_UNAVAILABLE if !says.is_empty() => Ok(ReadinessReport { ready: false, says }),
            _ => Err(process.wrong_process_error()),
        }
    });
    let condition = result.map_err(|error| match error {
        AdminClientError::Runtime(_) => report_error(&error),
        unreached => {
            report_error(&unreached);
            ExitCode::from(UNREACHABLE)
        }
    })?;
    let ReadinessReport { ready, says } = &condition;
    print_text(match arguments.format {
        OutputFormat::Json => json!({ "ready": ready, "says": says }).to_string(),
        OutputFormat::Text if *ready => says.clone(),
        OutputFormat::Text => format!("not ready: {says}"),
    })?;
    if *ready { Ok(()) } else { Err(ExitCode::from(RUNTIME)) }
}
