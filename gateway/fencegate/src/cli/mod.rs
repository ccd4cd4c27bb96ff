//! The command line: the verbs of the one binary, and its exit codes.

mod acl;
mod admin_client;
mod check;
mod config;
mod ensemble;
mod era;
mod examples;
mod exit;
mod explain;
mod guard_backups;
mod init;
mod keys;
mod lease_verbs;
mod lock_arguments;
mod lock_source_args;
mod locks;
mod log;
mod members;
mod migrate_guard;
mod once;
mod out;
mod outcomes;
mod policy;
mod print;
mod ready;
mod registration;
mod reload;
mod run;
mod run_guard;
mod run_locked_args;
mod sample_args;
mod table;
mod top;
mod verb_groups;
mod verify;

use std::{env, ffi::OsString, io, path::PathBuf, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use fencegate_demo as demo;
use fencegate_exec::reexec;
use fencegate_process::log_writer::flush_stderr;

use self::{
    admin_client::CommandHintTarget,
    examples::with_examples,
    lock_arguments::LockArgs,
    log::{LogProfile, OutputFormat},
    out::{print_result, print_text, report_error},
    verb_groups::with_verb_groups,
};

/// An HTTP reverse proxy that holds a ZooKeeper lock per resource and stamps a fencing token.
#[derive(Debug, Parser)]
#[command(name = "fencegate", version, after_help = exit::CODES)]
struct Cli {
    /// The format of the log on stderr: `text` or `json`.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = OutputFormat::Text,
        value_name = "FORMAT",
        hide_possible_values = true,
        hide_default_value = true,
        display_order = 900
    )]
    log_format: OutputFormat,
    #[command(subcommand)]
    command: CliCommand,
}

impl CliCommand {
    fn verbosity(&self) -> LogProfile {
        let command = |is_verbose| if is_verbose { LogProfile::Serving } else { LogProfile::Quiet };
        match self {
            Self::Run(_) => LogProfile::Serving,
            Self::Guard(arguments) if arguments.is_server() => LogProfile::Serving,
            Self::Lock(arguments) => match &**arguments {
                LockArgs::Verb(_) => LogProfile::Brief,
                LockArgs::UnderLock(under_lock) => command(under_lock.is_verbose()),
            },
            Self::Elect(election) => command(election.is_verbose()),
            _ => LogProfile::Brief,
        }
    }
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the gateway until SIGTERM.
    Run(run::RunGatewayArgs),
    /// Run the guard beside an upstream until SIGTERM, or ask a running one.
    Guard(run_guard::GuardArgs),
    /// Check the policy of a gateway or the file of a guard: all errors at once, each with its place and remedy.
    Check(check::CheckArgs),
    /// Have a running gateway read its policy again, as SIGHUP does, and say what changes.
    Reload(reload::ReloadArgs),
    /// Tell by the exit code whether a running gateway could grant locks now. For a guard: `guard ready`.
    Ready(ready::ReadyArgs),
    /// List the gateways of the installation: their addresses, their versions, and whether they are ready.
    Members(members::MembersArgs),
    /// List the keys that a running gateway holds, and who waits for them.
    Locks(locks::LockListArgs),
    /// Run a command while a lock is held; or look at one lock of a running gateway, or break it.
    Lock(Box<LockArgs>),
    /// List the leases that clients hold at a running gateway, or take one back.
    #[command(subcommand)]
    Lease(lease_verbs::LeaseAdminCommand),
    /// Run a command as the elected leader: wait until elected, and end the command when the lead is lost.
    Elect(Box<run_locked_args::ElectArgs>),
    /// Show the list of `locks` as a table that renews itself, with the keys that are waited for longest.
    Top(top::TopArgs),
    /// Have a running gateway end in order, as SIGTERM does.
    Drain(locks::DrainArgs),
    /// Explain what would happen to a request, without sending it; or tell the long story of an error code.
    Explain(explain::ExplainArgs),
    /// Print a starter file with comments, or a policy made out of an OpenAPI description. Redirect it, edit it, check it.
    Init(init::InitArgs),
    /// Print the JSON Schema of policies, for editors.
    Schema {
        /// Print the schema of a guard's file.
        #[arg(long)]
        guard: bool,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: print::Shell,
    },
    /// Print the manual page, or write those of all verbs into a folder.
    Man {
        /// Write a page for each verb into this folder, which has to be there.
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
    /// Print the version.
    Version,
    /// Show or change the identity of an installation in ZooKeeper.
    #[command(subcommand)]
    Era(era::EraCommand),
    /// Show or set who may write the nodes of the installation in ZooKeeper.
    #[command(subcommand)]
    Acl(acl::AclCommand),
    /// List or resolve operations that ZooKeeper remembers, for upstreams without a guard.
    #[command(subcommand)]
    Once(once::OnceCommand),
    /// Make the keys with which tickets are signed and verified.
    #[command(subcommand)]
    Keys(keys::TicketKeyCommand),
    /// Test a service that claims to compare tokens, from outside: is a late request refused, also in a race?
    #[command(after_help = verify::CODES)]
    Verify(Box<verify::VerifyArgs>),
    /// Play an accident on one machine: a private ZooKeeper, two gateways, a payment service, and a late write.
    Demo(demo::DemoOptions),
}

/// Runs the verb that the command line names. Returns one of [`exit::CODES`].
pub fn run() -> ExitCode {
    if let Some(played) = reexec::run_if_reexecuted(env::args_os()) {
        return played;
    }
    let arguments = parse(env::args_os()).unwrap_or_else(|mistake| exit::exit_with_usage(&mistake));
    log::start_logging(arguments.log_format, arguments.command.verbosity());
    let done = match arguments.command {
        CliCommand::Run(arguments) => run::run(arguments),
        CliCommand::Guard(arguments) => run_guard::run(arguments),
        CliCommand::Check(arguments) => check::run(&arguments),
        CliCommand::Ready(arguments) => ready::run(&arguments, CommandHintTarget::Gateway),
        CliCommand::Members(arguments) => members::run(&arguments),
        CliCommand::Locks(listing) => locks::list(&listing),
        CliCommand::Lock(arguments) => match *arguments {
            LockArgs::Verb(verb) => locks::run(&verb),
            LockArgs::UnderLock(under_lock) => Err(under_lock.run()),
        },
        CliCommand::Lease(verb) => lease_verbs::run(&verb),
        CliCommand::Elect(election) => Err(election.run()),
        CliCommand::Top(arguments) => top::run(&arguments),
        CliCommand::Drain(draining) => locks::drain(&draining),
        CliCommand::Reload(arguments) => reload::run(&arguments),
        CliCommand::Explain(arguments) => explain::run(&arguments).and_then(print_text),
        CliCommand::Init(arguments) => init::run(&arguments),
        CliCommand::Schema { guard } => print_text(print::policy_json_schema(guard)),
        CliCommand::Completions { shell } => print_text(print::completions(command(), shell)),
        CliCommand::Man { into: None } => print_text(print::manual(command())),
        CliCommand::Man { into: Some(folder) } => print::write_manuals(command(), &folder)
            .map_err(|error| report_error(&WriteManualsError { folder, source: error })),
        CliCommand::Version => print_text(format!("fencegate {}", env!("CARGO_PKG_VERSION"))),
        CliCommand::Era(verb) => verb.config().plan().and_then(|plan| print_result(era::run(&verb, &plan))),
        CliCommand::Acl(verb) => verb.config().plan().and_then(|plan| acl::run(&verb, &plan.zookeeper)),
        CliCommand::Once(verb) => verb.config().plan().and_then(|plan| print_result(once::run(&verb, &plan))),
        CliCommand::Keys(verb) => print_result(keys::run(&verb)),
        CliCommand::Verify(arguments) => verify::run(&arguments),
        CliCommand::Demo(options) => Err(demo::run(options).unwrap_or_else(|error| report_error(&error))),
    };
    flush_stderr();
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn command() -> clap::Command {
    with_verb_groups(with_examples(Cli::command()))
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|mistake| mistake.format(&mut command))
}

/// The manual pages could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the manual pages into {}", .folder.display())]
struct WriteManualsError {
    folder: PathBuf,
    source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `look` for the program and then for every verb, each with its path.
    pub(super) fn for_each_command(
        command: &clap::Command,
        path: &str,
        look: &mut impl FnMut(&str, &clap::Command),
    ) {
        look(path, command);
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            for_each_command(verb, &format!("{path} {}", verb.get_name()), look);
        }
    }

    #[test]
    fn every_command_and_argument_has_help() {
        let mut silent = Vec::new();
        for_each_command(&command(), "fencegate", &mut |path, verb| {
            if verb.get_about().is_none() {
                silent.push(path.to_owned());
            }
            let arguments = verb.get_arguments().filter(|argument| argument.get_help().is_none());
            silent.extend(arguments.map(|argument| format!("{path} {argument}")));
        });
        assert!(silent.is_empty(), "{silent:#?}");
    }
}
