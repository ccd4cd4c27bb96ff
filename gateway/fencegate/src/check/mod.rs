//! `fencegate check`: all that is wrong with a file and, where asked, with what it leads to.
//!
//! Looking changes nothing: a session is made and closed, connections are made and closed, files are read.

mod checked;
mod endpoints;
mod ensemble;
mod files;
mod findings;
mod handshakes;
mod online;
mod other_gateways;
mod report;
mod services;
mod store;
mod writers;

use std::io;

use fencegate_policies::file::{self, Kind, Loaded};

pub use self::{
    checked::Checked,
    findings::Fact,
    report::{CheckReport, Said},
};
use crate::written::Written;

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The file alone.
    File,
    /// Also what it names: ZooKeeper, endpoints, files.
    Online,
}

/// Reads the file and, where its plan is sound, looks at what it leads to.
///
/// # Errors
/// The machine has no resources for a runtime.
pub fn check(file: &Written, depth: Depth) -> io::Result<Checked> {
    let kind = file::kind(&file.text);
    match kind {
        Kind::Gateway => {
            let loaded = file.load(file::load_in);
            go_on(kind, loaded, depth, |plan| online::gateway(&file.text, plan))
        }
        Kind::Guard => {
            let loaded = file.load(file::load_guard_in);
            go_on(kind, loaded, depth, |plan| online::guard(&file.text, plan))
        }
    }
}

fn go_on<P>(
    kind: Kind,
    loaded: Loaded<P>,
    depth: Depth,
    look: impl FnOnce(&P) -> io::Result<online::Found>,
) -> io::Result<Checked> {
    let Loaded { plan, mut diagnostics, traces: _ } = loaded;
    let online = match (depth, plan) {
        (Depth::Online, Some(plan)) => {
            let found = look(&plan)?;
            diagnostics.extend(found.diagnostics);
            Some(found.facts)
        }
        _ => None,
    };
    Ok(Checked { kind, diagnostics, online })
}
