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

use fencegate_policies::file::{self, FileKind, LoadedFile};

pub use self::{
    findings::Finding,
    outcome::CheckOutcome,
    report::{CheckReport, DiagnosticJson},
};
use crate::policy_file::PolicyFile;

/// The depth of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The file alone.
    File,
    /// The file, and the servers, endpoints and files that it names.
    Online,
}

/// Reads the file. If its plan is sound, checks the files and services that it names.
///
/// # Errors
/// The machine has no resources for a runtime.
pub fn check(file: &PolicyFile, depth: Depth) -> io::Result<CheckOutcome> {
    let kind = file::kind(&file.text);
    match kind {
        FileKind::Gateway => {
            let loaded = file.load(file::load_in);
            check_loaded(kind, loaded, depth, |plan| online::gateway(&file.text, plan))
        }
        FileKind::Guard => {
            let loaded = file.load(file::load_guard_in);
            check_loaded(kind, loaded, depth, |plan| online::guard(&file.text, plan))
        }
    }
}

fn check_loaded<P>(
    kind: FileKind,
    loaded: LoadedFile<P>,
    depth: Depth,
    look: impl FnOnce(&P) -> io::Result<online::OnlineResult>,
) -> io::Result<CheckOutcome> {
    let LoadedFile { plan, mut diagnostics, traces: _ } = loaded;
    let online = match (depth, plan) {
        (Depth::Online, Some(plan)) => {
            let found = look(&plan)?;
            diagnostics.extend(found.diagnostics);
            Some(found.facts)
        }
        _ => None,
    };
    Ok(CheckOutcome { kind, diagnostics, online })
}
