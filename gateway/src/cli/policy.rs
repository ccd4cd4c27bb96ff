//! Reads the policy of a gateway or the file of a guard, and shows everything that is wrong with it.

use std::{path::Path, process::ExitCode};

use fencegate_policies::{
    file::{self, Environment, Kind, Loaded},
    plan::{Gateway, Guard},
};

use super::{CONFIGURATION, RUNTIME};
use crate::written::{Unreadable, Written};

/// The plan; else every error is on stderr, and the exit code is returned. Warnings are shown in both cases.
pub(super) fn read(path: &Path) -> Result<Gateway, ExitCode> {
    plan(&open(path)?, file::load_in)
}

/// As [`read`], for a guard.
pub(super) fn read_guard(path: &Path) -> Result<Guard, ExitCode> {
    plan(&open(path)?, file::load_guard_in)
}

/// As [`read`], for a file of either kind.
pub(super) fn check(path: &Path) -> Result<(), ExitCode> {
    let file = open(path)?;
    match file::kind(&file.text) {
        Kind::Gateway => plan(&file, file::load_in).map(drop),
        Kind::Guard => plan(&file, file::load_guard_in).map(drop),
    }
}

fn open(path: &Path) -> Result<Written, ExitCode> {
    Written::open(path).map_err(|unreadable| match unreadable {
        Unreadable::Io { .. } => {
            eprintln!("error: {unreadable}");
            ExitCode::from(RUNTIME)
        }
        Unreadable::NotText(_) => {
            eprintln!("{unreadable}");
            ExitCode::from(CONFIGURATION)
        }
    })
}

fn plan<P>(file: &Written, load: fn(&str, &Environment) -> Loaded<P>) -> Result<P, ExitCode> {
    let told = file.plan(load);
    for said in told.said {
        eprintln!("{said}");
    }
    told.plan.ok_or(ExitCode::from(CONFIGURATION))
}
