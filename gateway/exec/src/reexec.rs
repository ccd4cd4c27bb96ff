//! Dispatches the inner processes of a command. The binary starts itself again under other names.

use std::{ffi::OsString, process::ExitCode};

use super::{
    exec_command,
    program_names::{BECOMING, WATCHMAN},
    supervisor,
};

/// Runs the inner process whose name this process was started with; `None` for any other name.
pub fn run_if_reexecuted(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    match arguments.next()?.to_str()? {
        WATCHMAN => Some(supervisor::run(arguments)),
        BECOMING => Some(exec_command::exec_locked_command(arguments)),
        _ => None,
    }
}
