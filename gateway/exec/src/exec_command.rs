//! Becomes the command. This is the last step before the command runs, so that the kernel kills the command if its
//! supervisor dies.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use fencegate_process::clock::{BootInstant, Clock, MachineClock};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{
    exit_code::{NOT_RUN, print_error, refuse_manual_start},
    termination::KILLED_BEFORE,
};

/// The arguments are the process id of the parent, the end of the lock validity, and the command.
pub(super) fn exec_locked_command(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|number| Pid::from_raw(number.to_str()?.parse().ok()?));
    let until =
        arguments.next().and_then(|nanos| Some(BootInstant::from_nanos(nanos.to_str()?.parse().ok()?)));
    let (Some(parent), Some(until), Some(program)) = (parent, until, arguments.next()) else {
        return refuse_manual_start();
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        print_error(&format!("error: ask the kernel to end us with our parent: {error}"));
        return ExitCode::from(NOT_RUN);
    }
    // The parent may have died before the kernel received the request for the signal.
    if getppid() != Some(parent) {
        return ExitCode::from(NOT_RUN);
    }
    // The machine may have stood still since the lock was granted.
    if MachineClock.now() + KILLED_BEFORE >= until {
        print_error("error: FG0622: the lock was over before the command could be started; nothing was run");
        return ExitCode::from(NOT_RUN);
    }
    let why = Command::new(&program).args(arguments).exec();
    print_error(&format!("error: FG0625: run `{}`: {why}", program.display()));
    ExitCode::from(exec_error_code(&why))
}

/// The exit codes of `env(1)`.
fn exec_error_code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}
