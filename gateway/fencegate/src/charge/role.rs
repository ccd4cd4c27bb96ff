//! Which of the processes around a command this one is to be: the binary starts itself anew under another name.

use std::{ffi::OsString, process::ExitCode};

use super::{entry, watchman};

/// The parent of a command, as `ps` shows it.
pub(super) const WATCHMAN: &str = "fencegate-watchman";
/// What becomes the command.
pub(super) const ENTRY: &str = "fencegate-entry";
/// Ourselves, also when our file was replaced since.
pub(super) const OURSELVES: &str = "/proc/self/exe";

/// Plays the role that the name asks for under which we were started; `None` where that is none of these.
pub fn played(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    match arguments.next()?.to_str()? {
        WATCHMAN => Some(watchman::run(arguments)),
        ENTRY => Some(entry::run(arguments)),
        _ => None,
    }
}

/// Whoever calls a role by hand.
pub(super) fn misplaced() -> ExitCode {
    entry::complain("error: this is started by `fencegate lock` and `fencegate elect`, and by nobody else");
    ExitCode::from(2)
}
