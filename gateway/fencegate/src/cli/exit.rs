//! The exit codes of the process.

use std::{env, ffi::OsStr, process};

use clap::error::ErrorKind;
use fencegate_exec::exit_code::NOT_RUN;

/// The exit codes of the process.
pub(super) const CODES: &str = "\
Exit codes: 0 done; 1 it could not be done, and stderr says why; 2 the command line makes no sense; 74 it was done, and \
stdout could not be written; 78 the policy has errors (with `--strict`, warnings). Of `reload --fleet`: 3 a route would \
be refused. Of `verify`: 3 a case failed; 4 none \
failed, and one could not be decided. Of `verify` and `ready`: 69 nobody could be reached. `fencegate explain CODE` tells more of every \
FG code.";

/// The command failed while it ran.
pub(super) const RUNTIME: u8 = 1;
/// The arguments make no sense, in a way that clap cannot see.
pub(super) const USAGE: u8 = 2;
/// `EX_CONFIG` of sysexits.h: a mistake in the policy file.
pub(super) const CONFIGURATION: u8 = 78;
/// `EX_IOERR` of sysexits.h: the work was done, but its output could not be written.
pub(super) const UNWRITTEN: u8 = 74;
/// At least one case of `verify` failed, or `reload --fleet` found a route that would be refused.
pub(super) const FAILED: u8 = 3;
/// No case of `verify` failed, and at least one could not be decided.
pub(super) const UNDECIDED: u8 = 4;
/// `EX_UNAVAILABLE` of sysexits.h: the service of `verify`, or the process of `ready`, could not be reached.
pub(super) const UNREACHABLE: u8 = 69;

/// Reports a mistake on the command line, or prints the requested help, and ends the process. For a verb that runs a
/// command, the exit code tells that the command was not run.
pub(super) fn exit_with_usage(mistake: &clap::Error) -> ! {
    let is_help = matches!(mistake.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help || !is_run_under_lock(env::args_os()) {
        mistake.exit();
    }
    // The exit code matters more than the message, so a failure to print is ignored.
    mistake.print().ok();
    process::exit(NOT_RUN.into())
}

fn is_run_under_lock(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let among = |word: &str| arguments.iter().skip(1).any(|argument| argument.as_ref() == word);
    (among("lock") || among("elect")) && among("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only `lock` or `elect` with a `--` runs a command.
    #[test]
    fn command_runner_needs_double_dash() {
        assert!(is_run_under_lock(["fencegate", "lock", "a", "--", "true"]));
        assert!(!is_run_under_lock(["fencegate", "lock", "show", "a"]));
        assert!(!is_run_under_lock(["fencegate", "check", "--"]));
    }
}
