//! The exit codes that are not the command's own, and the messages that go with them.

use std::process::ExitCode;

use fencegate_process::log_writer::write_stderr;

/// A lock was lost while its command ran.
pub const LOST: u8 = 123;
/// Another holder has the lock, and the wait is over.
pub const HELD_BY_ANOTHER: u8 = 124;
/// Nothing was run.
pub const NOT_RUN: u8 = 125;

/// Prints a line to standard error. Does not fail if standard error is closed.
pub(super) fn print_error(text: &str) {
    write_stderr(format!("{text}\n").as_bytes()).ok();
}

/// The answer to a user that starts an inner process by hand.
pub(super) fn refuse_manual_start() -> ExitCode {
    print_error("error: this is a part of a command under a lock, which starts it by itself");
    ExitCode::from(NOT_RUN)
}
