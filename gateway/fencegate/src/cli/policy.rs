//! Reads the policy of a gateway or the file of a guard, and shows all its mistakes.

use std::{path::Path, process::ExitCode};

use fencegate_config::policy_file::{PolicyFile, ReadPolicyError};
use fencegate_policies::{
    diagnostics::{Diagnostic, Severity},
    file::{self, Environment, LoadedPolicy},
    plan::{GatewayPlan, GuardPlan},
};
use tracing::{error, warn};

use super::{
    exit::{CONFIGURATION, RUNTIME},
    log::{self, OutputFormat},
    out::print_error,
};

/// Whether warnings are shown beside errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiagnosticFilter {
    All,
    /// Errors only, for a verb that looks something up in a file that is in use.
    Errors,
}

/// The plan of a gateway's policy. If the policy has errors, all of them are written to stderr, and the exit code
/// is returned. Warnings are shown in both cases.
pub(super) fn read_gateway(path: &Path) -> Result<GatewayPlan, ExitCode> {
    load_plan(&open(path)?, DiagnosticFilter::All, file::load_with_environment)
}

/// Like [`read_gateway`], for the file of a guard.
pub(super) fn read_guard(path: &Path) -> Result<GuardPlan, ExitCode> {
    load_plan(&open(path)?, DiagnosticFilter::All, file::load_guard_with_environment)
}

/// Like [`read_gateway`], without warnings.
pub(super) fn read_gateway_quietly(path: &Path) -> Result<GatewayPlan, ExitCode> {
    load_plan(&open(path)?, DiagnosticFilter::Errors, file::load_with_environment)
}

/// Like [`read_gateway_quietly`], for the file of a guard.
pub(super) fn read_guard_quietly(path: &Path) -> Result<GuardPlan, ExitCode> {
    load_plan(&open(path)?, DiagnosticFilter::Errors, file::load_guard_with_environment)
}

fn open(path: &Path) -> Result<PolicyFile, ExitCode> {
    PolicyFile::open(path).map_err(|unreadable| report_unreadable(&unreadable))
}

/// Reports that the file could not be read, and returns the exit code.
pub(super) fn report_unreadable(unreadable: &ReadPolicyError) -> ExitCode {
    match (unreadable, log::log_format()) {
        (_, OutputFormat::Json) => error!(error = %unreadable, "the command failed"),
        (ReadPolicyError::Io { .. }, OutputFormat::Text) => print_error(format_args!("error: {unreadable}")),
        // This message begins with a code, as every diagnostic does, so `error: ` is not put before it.
        (ReadPolicyError::InvalidText(..), OutputFormat::Text) => print_error(unreadable),
    }
    ExitCode::from(match unreadable {
        ReadPolicyError::Io { .. } => RUNTIME,
        ReadPolicyError::InvalidText(..) => CONFIGURATION,
    })
}

fn load_plan<P>(
    file: &PolicyFile,
    shown: DiagnosticFilter,
    load: fn(&str, &Environment) -> LoadedPolicy<P>,
) -> Result<P, ExitCode> {
    let LoadedPolicy { plan, diagnostics, .. } = file.load(load);
    let errors_only = shown == DiagnosticFilter::Errors && plan.is_some();
    for diagnostic in diagnostics.iter().filter(|one| !errors_only || one.severity == Severity::Error) {
        match log::log_format() {
            OutputFormat::Text => print_error(file.render(diagnostic)),
            OutputFormat::Json => log_diagnostic(file.name(), diagnostic),
        }
    }
    plan.ok_or(ExitCode::from(CONFIGURATION))
}

/// Logs a diagnostic as one event, because a log collector reads only lines of JSON.
fn log_diagnostic(file: &str, diagnostic: &Diagnostic) {
    let Diagnostic { code, severity, message, place, remedy } = diagnostic;
    let code = code.number();
    let line = place.map(|place| place.line);
    let column = place.map(|place| place.column);
    match severity {
        Severity::Error => error!(code, file, line, column, said = message, remedy, "config.error"),
        Severity::Warning | Severity::Hint => {
            warn!(code, file, line, column, said = message, remedy, "config.warning")
        }
    }
}
