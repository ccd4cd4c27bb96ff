//! Which of the processes around a command this one is to be: the binary starts itself anew under another name.

use std::{ffi::OsString, process::ExitCode};

use super::{
    becoming,
    started_anew::{BECOMING, WATCHMAN},
    watchman,
};

/// Plays the role that the name asks for under which we were started; `None` where that is none of these.
pub fn played(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    match arguments.next()?.to_str()? {
        WATCHMAN => Some(watchman::run(arguments)),
        BECOMING => Some(becoming::run(arguments)),
        _ => None,
    }
}
