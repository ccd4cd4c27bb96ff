//! Reads the policy of a gateway or the file of a guard, and shows everything that is wrong with it.

use std::{path::Path, process::ExitCode};

use fencegate_policies::{
    file::{self, Environment, Loaded},
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

fn open(path: &Path) -> Result<Written, ExitCode> {
    Written::open(path).map_err(|unreadable| match unreadable {
        Unreadable::Io { .. } => {
            eprintln!("error: {unreadable}");
            ExitCode::from(RUNTIME)
        }
        Unreadable::NotText(..) => {
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
