//! What the process ends with.

use std::{env, ffi::OsStr, process};

use clap::error::ErrorKind;

use crate::charge::exit_code::NOT_RUN;

/// What the process ends with.
pub(super) const CODES: &str = "\
Exit codes: 0 done; 1 it could not be done, and stderr says why; 2 the command line makes no sense; 74 it was done, and \
stdout could not be written; 78 the policy has errors (with `--strict`, warnings). Of `reload --fleet`: 3 a route would \
be refused. Of `verify`: 3 a case failed; 4 none \
failed, and one could not be decided. Of `verify` and `ready`: 69 nobody could be reached. `fencegate explain CODE` tells more of every \
FG code.";

/// Runtime trouble.
pub(super) const RUNTIME: u8 = 1;
/// What was asked for makes no sense, in a way that clap cannot see.
pub(super) const USAGE: u8 = 2;
/// `EX_CONFIG` of sysexits.h: the policy file is at fault.
pub(super) const CONFIGURATION: u8 = 78;
/// `EX_IOERR` of sysexits.h: what was asked for was done, and what there is to say of it could not be written.
pub(super) const UNWRITTEN: u8 = 74;
/// Of `verify`: at least one case failed. Of `reload --fleet`: a route would be refused.
pub(super) const FAILED: u8 = 3;
/// Of `verify`: none failed, and at least one could not be decided.
pub(super) const UNDECIDED: u8 = 4;
/// `EX_UNAVAILABLE` of sysexits.h: whom `verify` or `ready` asks could not be reached.
pub(super) const UNREACHABLE: u8 = 69;

/// Says what is wrong with the command line, or what was asked for instead, and ends. Whoever has a command run is told by a
/// code that is not the command's that nothing was run.
pub(super) fn misread(mistake: &clap::Error) -> ! {
    let asked = matches!(mistake.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked || !runs_a_command(env::args_os()) {
        mistake.exit();
    }
    // Nobody may be there to read it.
    mistake.print().ok();
    process::exit(NOT_RUN.into())
}

fn runs_a_command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let among = |word: &str| arguments.iter().skip(1).any(|argument| argument.as_ref() == word);
    (among("lock") || among("elect")) && among("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_command_run_says_so_with_two_dashes() {
        assert!(runs_a_command(["fencegate", "lock", "a", "--", "true"]));
        assert!(!runs_a_command(["fencegate", "lock", "show", "a"]));
        assert!(!runs_a_command(["fencegate", "check", "--"]));
    }
}
