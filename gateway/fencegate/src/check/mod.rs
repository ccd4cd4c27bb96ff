//! `fencegate check`: all mistakes in a file, and with `--online` also in the files and services that it names.
//!
//! A check changes nothing: it opens and closes a session and connections, and reads files.

mod acl;
mod endpoints;
mod ensemble;
mod files;
mod findings;
mod fleet;
mod handshakes;
mod online;
mod outcome;
mod report;
mod services;
mod store;

use std::io;

use fencegate_policies::file::{self, LoadedPolicy, PolicyFileKind};

pub use self::{
    findings::Finding,
    outcome::PolicyCheckOutcome,
    report::{DiagnosticJson, PolicyCheckReport},
};
use crate::policy_file::PolicyFile;

/// The depth of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckDepth {
    /// The file alone.
    File,
    /// The file, and the servers, endpoints and files that it names.
    Online,
}

/// Reads the file. If its plan is sound, checks the files and services that it names.
///
/// # Errors
/// The machine has no resources for a runtime.
pub fn check(file: &PolicyFile, depth: CheckDepth) -> io::Result<PolicyCheckOutcome> {
    let kind = file::detect_file_kind(&file.text);
    match kind {
        PolicyFileKind::Gateway => {
            let loaded = file.load(file::load_with_environment);
            check_loaded(kind, loaded, depth, |plan| online::check_gateway(&file.text, plan))
        }
        PolicyFileKind::Guard => {
            let loaded = file.load(file::load_guard_with_environment);
            check_loaded(kind, loaded, depth, |plan| online::check_guard(&file.text, plan))
        }
    }
}

fn check_loaded<P>(
    kind: PolicyFileKind,
    loaded: LoadedPolicy<P>,
    depth: CheckDepth,
    look: impl FnOnce(&P) -> io::Result<online::OnlineCheckResult>,
) -> io::Result<PolicyCheckOutcome> {
    let LoadedPolicy { plan, mut diagnostics, traces: _ } = loaded;
    let online = match (depth, plan) {
        (CheckDepth::Online, Some(plan)) => {
            let found = look(&plan)?;
            diagnostics.extend(found.diagnostics);
            Some(found.facts)
        }
        _ => None,
    };
    Ok(PolicyCheckOutcome { kind, diagnostics, online })
}
