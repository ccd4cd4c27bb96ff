//! `fencegate check`: all that is wrong with a file and, where asked, with what it leads to.
//!
//! Looking changes nothing: a session is made and closed, connections are made and closed, files are read.

mod checked;
mod endpoints;
mod ensemble;
mod files;
mod findings;
mod online;
mod peers;
mod report;
mod services;

use std::io;

use fencegate_policies::file::{self, Kind, Loaded};

pub use self::{
    checked::Checked,
    findings::Fact,
    report::{Report, Said},
};
use crate::written::Written;

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The file alone.
    File,
    /// Also what it names: ZooKeeper, endpoints, files.
    Online,
}

/// Reads the file and, where its plan is sound, looks at what it leads to.
///
/// # Errors
/// The machine has no resources for a runtime.
pub fn check(file: &Written, reach: Reach) -> io::Result<Checked> {
    let kind = file::kind(&file.text);
    match kind {
        Kind::Gateway => {
            let loaded = file.load(file::load_in);
            go_on(kind, loaded, reach, |plan| online::gateway(&file.text, plan))
        }
        Kind::Guard => {
            let loaded = file.load(file::load_guard_in);
            go_on(kind, loaded, reach, |plan| online::guard(&file.text, plan))
        }
    }
}

fn go_on<P>(
    kind: Kind,
    loaded: Loaded<P>,
    reach: Reach,
    look: impl FnOnce(&P) -> io::Result<online::Found>,
) -> io::Result<Checked> {
    let Loaded { plan, mut diagnostics, traces: _ } = loaded;
    let online = match (reach, plan) {
        (Reach::Online, Some(plan)) => {
            let found = look(&plan)?;
            diagnostics.extend(found.diagnostics);
            Some(found.facts)
        }
        _ => None,
    };
    Ok(Checked { kind, diagnostics, online })
}
