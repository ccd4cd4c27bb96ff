//! `fencegate check` and `fencegate explain`: all mistakes in a file, with `--online` also in the files and services that it
//! names, and how a request would be handled. A check leaves nothing behind: it opens and closes a session and connections,
//! reads files, and makes a node in ZooKeeper that it removes again, to learn the time there.
//!
//! - `findings`: findings outside of the file; `files`: the files that it names
//! - `online`: everything that a plan names, at the same time: `ensemble` and `acl` are ZooKeeper, `fleet` and
//!   `handshakes` the other gateways, `endpoints` and `services` the upstreams, `store` the store of a guard
//! - `clock_difference`: clocks of guards and ZooKeeper beside ours
//! - `report`: the findings together, and their form for programs
//! - [`explain`]: runs the deciding steps of `fencegate-proxy` for a request, and sends nothing
//!
//! The mistakes in the text of a file are found by `policies`.

// The request path is a future that contains other futures, a few dozen deep. rustc computes the layout of all
// of them, and needs a higher limit for that.
#![recursion_limit = "256"]
// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod acl;
mod clock_difference;
mod endpoints;
mod ensemble;
pub mod explain;
mod files;
mod findings;
mod fleet;
mod handshakes;
mod online;
mod report;
mod services;
mod store;

use std::io;

use fencegate_config::policy_file::PolicyFile;
use fencegate_policies::file::{self, LoadedPolicy, PolicyProcessKind};

pub use self::{
    findings::OnlineCheckFinding,
    report::{DiagnosticJson, PolicyCheckOutcome, PolicyCheckReport},
};

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
/// Returns an error if the machine has no resources for a runtime.
pub fn check(file: &PolicyFile, depth: CheckDepth) -> io::Result<PolicyCheckOutcome> {
    let kind = file::detect_file_kind(&file.text);
    match kind {
        PolicyProcessKind::Gateway => {
            let loaded = file.load(file::load_with_environment);
            check_loaded(kind, loaded, depth, |plan| online::check_gateway(&file.text, plan))
        }
        PolicyProcessKind::Guard => {
            let loaded = file.load(file::load_guard_with_environment);
            check_loaded(kind, loaded, depth, |plan| online::check_guard(&file.text, plan))
        }
    }
}

fn check_loaded<P>(
    kind: PolicyProcessKind,
    loaded: LoadedPolicy<P>,
    depth: CheckDepth,
    look: impl FnOnce(&P) -> io::Result<online::OnlineCheckResult>,
) -> io::Result<PolicyCheckOutcome> {
    let LoadedPolicy { plan, mut diagnostics, hints, traces: _ } = loaded;
    let online = match (depth, plan) {
        (CheckDepth::Online, Some(plan)) => {
            let found = look(&plan)?;
            diagnostics.extend(found.diagnostics);
            Some(found.facts)
        }
        _ => None,
    };
    Ok(PolicyCheckOutcome { kind, diagnostics, hints, online })
}
