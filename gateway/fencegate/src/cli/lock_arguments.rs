//! `fencegate lock` with a key and a command, or with a verb about one key.

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::{
    locks::LockCommand,
    run_locked_args::{self, RunLockedArgs},
};

/// A key with a command, or a verb. With optional groups of clap alone it would not be clear which of the two
/// the user meant.
#[derive(Debug)]
pub(super) enum LockArgs {
    Verb(LockCommand),
    UnderLock(RunLockedArgs),
}

impl FromArgMatches for LockArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => LockCommand::from_arg_matches(matches).map(Self::Verb),
            None => RunLockedArgs::from_arg_matches(matches).map(Self::UnderLock),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LockArgs {
    /// Only the first word can be a verb. After an option, the same word is a key.
    fn augment_args(command: Command) -> Command {
        LockCommand::augment_subcommands(RunLockedArgs::augment_args(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .subcommand_required(false)
            .arg_required_else_help(true)
            .after_help(run_locked_args::CODES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        arguments: LockArgs,
    }

    fn parse(line: &str) -> Result<LockArgs, clap::Error> {
        TestCli::try_parse_from(line.split(' ')).map(|line| line.arguments)
    }

    /// `show` and `break` are verbs only directly after `lock`; behind an option they are keys.
    #[test]
    fn lock_verb_counts_only_first() {
        assert!(matches!(parse("lock show a"), Ok(LockArgs::Verb(LockCommand::Show { .. }))));
        assert!(matches!(parse("lock break a --yes"), Ok(LockArgs::Verb(LockCommand::Break { .. }))));
        for line in [
            "lock a -- true",
            "lock --wait 1s show -- true",
            "lock -v break -- true -x",
            "lock showy -- true",
        ] {
            assert!(matches!(parse(line), Ok(LockArgs::UnderLock(_))), "{line}");
        }
        for line in
            ["lock a", "lock show", "lock a b -- true", "lock a true", "lock --wait 1s show a", "lock"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
