//! The part that this process plays for a command. The binary starts itself again under other names.

use std::{ffi::OsString, process::ExitCode};

use super::{
    exec_command,
    program_names::{BECOMING, WATCHMAN},
    supervisor,
};

/// Plays the part that belongs to the name under which the process was started; `None` for any other name.
pub fn run_if_reexecuted(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    match arguments.next()?.to_str()? {
        WATCHMAN => Some(supervisor::run(arguments)),
        BECOMING => Some(exec_command::run(arguments)),
        _ => None,
    }
}
