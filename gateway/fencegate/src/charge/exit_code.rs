//! What we exit with where it is not the command's own code, and how we say why.

use std::{
    io::{self, Write},
    process::ExitCode,
};

/// A lock was lost while its command ran.
pub const LOST: u8 = 123;
/// Another one holds it, and the wait is over.
pub const HELD_BY_ANOTHER: u8 = 124;
/// Nothing was run: neither what was asked for nor anything else.
pub const NOT_RUN: u8 = 125;

/// Nobody may be there to read it.
pub(super) fn complain(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// For whoever plays a role by hand that is ours.
pub(super) fn misplaced() -> ExitCode {
    complain("error: this is a part of a command under a lock, which starts it by itself");
    ExitCode::from(NOT_RUN)
}
