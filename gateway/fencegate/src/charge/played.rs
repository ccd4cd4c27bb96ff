//! The part that this process plays for a command. The binary starts itself again under other names.

use std::{ffi::OsString, process::ExitCode};

use super::{
    becoming,
    started_anew::{BECOMING, WATCHMAN},
    watchman,
};

/// Plays the part that belongs to the name under which the process was started; `None` for any other name.
pub fn run_if_reexecuted(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    match arguments.next()?.to_str()? {
        WATCHMAN => Some(watchman::run(arguments)),
        BECOMING => Some(becoming::run(arguments)),
        _ => None,
    }
}
