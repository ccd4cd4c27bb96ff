//! The command line: what can be asked of the one binary, and what it exits with.

mod admin;
mod check;
mod ensemble;
mod era;
mod explain;
mod guard;
mod keys;
mod locks;
mod log;
mod once;
mod policy;
mod print;
mod reload;
mod table;
mod top;
mod when;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use tracing::error;

use self::log::Format;
use crate::{demo, serve::gateway};

/// An HTTP reverse proxy that holds a ZooKeeper lock per resource and stamps a fencing token.
#[derive(Debug, Parser)]
#[command(name = "fencegate", version, disable_help_subcommand = true)]
struct Arguments {
    /// How the log on stderr is written.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM.
    Run {
        #[arg(short = 'c', long = "config", value_name = "POLICY")]
        policy: PathBuf,
        /// Make the installation's nodes in ZooKeeper if there are none.
        #[arg(long)]
        init: bool,
        /// Worker threads; one per core unless given.
        #[arg(long, value_name = "N")]
        workers: Option<usize>,
        /// Read the policy again when the file changes, as SIGHUP does.
        #[arg(long)]
        watch: bool,
        /// Listen beside a gateway of the same user that is about to stop: a restart without a gap.
        #[arg(long)]
        beside: bool,
    },
    /// Run the guard beside an upstream until SIGTERM, or ask a running one.
    Guard(guard::Arguments),
    /// Check the policy of a gateway or the file of a guard: all errors at once, each with its place and remedy.
    Check(check::Arguments),
    /// Have a running gateway read its policy again, as SIGHUP does, and say what changes.
    Reload(reload::Arguments),
    /// What a running gateway holds, and who waits for it.
    Locks(locks::Listing),
    /// Look at one lock of a running gateway, or break it.
    #[command(subcommand)]
    Lock(locks::Verb),
    /// The same as `locks`, as a table that renews itself, with the keys that are waited for longest.
    Top(top::Top),
    /// Have a running gateway end in order, as SIGTERM does.
    Drain(locks::Draining),
    /// What would become of a request, without sending it; or the long story of an error code.
    Explain(explain::Explain),
    /// Print a starter file with comments. Redirect it, edit it, check it.
    Init {
        #[arg(value_enum)]
        starter: print::Starter,
    },
    /// Print the JSON Schema of policies, for editors.
    Schema {
        /// That of a guard's file.
        #[arg(long)]
        guard: bool,
    },
    /// Print a completion script for a shell.
    Completions {
        #[arg(value_enum)]
        shell: print::Shell,
    },
    /// Print the manual page.
    Man,
    /// The identity of an installation in ZooKeeper.
    #[command(subcommand)]
    Era(era::Era),
    /// Operations that ZooKeeper remembers, for upstreams without a guard.
    #[command(subcommand)]
    Once(once::Once),
    /// The keys that tickets are signed and checked with.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Everything on one machine: a private ZooKeeper, two gateways, a payment service, and an accident.
    Demo(demo::Options),
}

/// Runtime trouble.
const RUNTIME: u8 = 1;
/// What was asked for makes no sense, in a way that clap cannot see.
const USAGE: u8 = 2;
/// `EX_CONFIG` of sysexits.h: the policy file is at fault.
const CONFIGURATION: u8 = 78;

/// Exit codes: 0 done, 1 runtime trouble, 2 usage, 78 the policy file.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    log::start(arguments.log_format);
    let done = match arguments.command {
        Command::Run { policy: file, init, workers, watch, beside } => policy::read(&file).and_then(|plan| {
            let workers = workers.unwrap_or_else(cores);
            gateway::run(plan, gateway::Options { file, watch, init, beside, workers })
                .map_err(|trouble| failed(&trouble))
        }),
        Command::Guard(arguments) => guard::run(arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Locks(listing) => locks::list(&listing),
        Command::Lock(verb) => locks::run(&verb),
        Command::Top(asked) => top::run(&asked),
        Command::Drain(draining) => locks::drain(&draining),
        Command::Reload(arguments) => reload::run(&arguments),
        Command::Explain(asked) => explain::run(&asked).map(|said| println!("{said}")),
        Command::Init { starter } => print::print(starter.text().as_bytes()),
        Command::Schema { guard } => print::print(print::schema(guard).as_bytes()),
        Command::Completions { shell } => print::print(&print::completions(shell)),
        Command::Man => print::print(&print::manual()),
        Command::Era(verb) => policy::read(verb.policy()).and_then(|plan| {
            era::run(&verb, &plan).map(|said| println!("{said}")).map_err(|trouble| failed(&trouble))
        }),
        Command::Once(verb) => policy::read(verb.policy()).and_then(|plan| {
            once::run(&verb, &plan.zookeeper).map(|said| println!("{said}")).map_err(|trouble| told(&trouble))
        }),
        Command::Keys(verb) => {
            keys::run(&verb).map(|said| println!("{said}")).map_err(|trouble| failed(&trouble))
        }
        Command::Demo(options) => Err(demo::run(options).unwrap_or_else(|trouble| told(&trouble))),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn command() -> clap::Command {
    Arguments::command()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn failed(trouble: &dyn std::error::Error) -> ExitCode {
    error!(error = %chain(trouble), "failed");
    ExitCode::from(RUNTIME)
}

/// For whoever has asked for something at a terminal.
fn told(trouble: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {}", chain(trouble));
    ExitCode::from(RUNTIME)
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
