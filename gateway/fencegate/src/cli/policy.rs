//! Reads the policy of a gateway or the file of a guard, and shows all its mistakes.

use std::{path::Path, process::ExitCode};

use fencegate_policies::{
    diagnose::{Diagnostic, Severity},
    file::{self, Environment, Loaded},
    plan::{Gateway, Guard},
};
use tracing::{error, warn};

use super::{
    exit::{CONFIGURATION, RUNTIME},
    log::{self, Format},
    out::complain,
};
use crate::written::{Unreadable, Written};

/// Whether warnings are shown beside errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    All,
    /// Errors only, for a verb that looks something up in a file that is in use.
    Errors,
}

/// The plan. If there is none, all errors are on stderr, and the exit code is returned. Warnings are shown in both
/// cases.
pub(super) fn read(path: &Path) -> Result<Gateway, ExitCode> {
    plan(&open(path)?, Shown::All, file::load_in)
}

/// As [`read`], for a guard.
pub(super) fn read_guard(path: &Path) -> Result<Guard, ExitCode> {
    plan(&open(path)?, Shown::All, file::load_guard_in)
}

/// As [`read`], without warnings.
pub(super) fn read_quietly(path: &Path) -> Result<Gateway, ExitCode> {
    plan(&open(path)?, Shown::Errors, file::load_in)
}

/// As [`read_quietly`], for a guard.
pub(super) fn read_guard_quietly(path: &Path) -> Result<Guard, ExitCode> {
    plan(&open(path)?, Shown::Errors, file::load_guard_in)
}

fn open(path: &Path) -> Result<Written, ExitCode> {
    Written::open(path).map_err(|unreadable| unread(&unreadable))
}

/// Reports why there is no text, and returns the exit code.
pub(super) fn unread(unreadable: &Unreadable) -> ExitCode {
    match (unreadable, log::format()) {
        (_, Format::Json) => error!(error = %unreadable, "failed"),
        (Unreadable::Io { .. }, Format::Text) => complain(format_args!("error: {unreadable}")),
        // This message begins with a code, as every diagnostic does.
        (Unreadable::NotText(..), Format::Text) => complain(unreadable),
    }
    ExitCode::from(match unreadable {
        Unreadable::Io { .. } => RUNTIME,
        Unreadable::NotText(..) => CONFIGURATION,
    })
}

fn plan<P>(file: &Written, shown: Shown, load: fn(&str, &Environment) -> Loaded<P>) -> Result<P, ExitCode> {
    let Loaded { plan, diagnostics, .. } = file.load(load);
    let errors_only = shown == Shown::Errors && plan.is_some();
    for diagnostic in diagnostics.iter().filter(|one| !errors_only || one.severity == Severity::Error) {
        match log::format() {
            Format::Text => complain(file.shown(diagnostic)),
            Format::Json => tell(file.name(), diagnostic),
        }
    }
    plan.ok_or(ExitCode::from(CONFIGURATION))
}

/// Writes one log event, because a log collector reads only lines of JSON.
fn tell(file: &str, diagnostic: &Diagnostic) {
    let Diagnostic { code, severity, message, place, remedy } = diagnostic;
    let (code, line, column) =
        (code.number(), place.map(|place| place.line), place.map(|place| place.column));
    match severity {
        Severity::Error => error!(code, file, line, column, said = message, remedy, "config.error"),
        Severity::Warning => warn!(code, file, line, column, said = message, remedy, "config.warning"),
    }
}
