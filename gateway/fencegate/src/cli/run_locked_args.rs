//! `fencegate lock KEY -- COMMAND` and `fencegate elect NAME -- COMMAND`: a command that runs while a lock is held.

use std::{env, ffi::OsString, process::ExitCode, str::FromStr, time::Duration};

use clap::Args;
use fencegate_exec::{
    exit_code::NOT_RUN,
    lock_keeper::{CommandRunner, LockLossReason, LockedCommand},
    lock_spec::{AcquireLockError, CommandLockMode, CommandLockSpec, LockWaitPolicy},
    renewals::LockRenewalSchedule,
    run_loop::{CommandProgress, CommandRerunPolicy, LockedRunSpec, RunCommandError},
};
use fencegate_policies::key::ResourceKey;

use super::{lock_source_args::LockSourceArgs, out::print_error};

/// The exit codes of these verbs.
pub(super) const CODES: &str = "\
Exit codes: that of the command, or 128 and the number of the signal that ended it; 123 the lock was lost while the command ran, \
and the command was ended; 124, or --conflict-exit-code, another holds the lock, and the wait is over; 125 nothing was run for another reason, which stderr \
says; 126 the command cannot be run; 127 it was not found.

The command has FENCING_TOKEN, FENCING_NUMBER and FENCING_KEY in its environment, through a gateway FENCING_LEASE as well. It is ended (SIGTERM, after --grace SIGKILL) so that it is dead \
before the lock could be another's, also when this process is stopped or killed. That is not so where both of its processes are \
stopped, or the machine stands still: then only whoever compares FENCING_TOKEN keeps the resource safe.";

#[derive(Debug, Args)]
pub(super) struct RunLockedArgs {
    /// The key, as `fencegate locks` prints it. One that is called `show`, `break` or `help` is written behind an option: `fencegate
    /// lock --wait 30s show -- COMMAND`.
    #[arg(value_name = "KEY")]
    key: KeyArg,
    /// How long to wait for another holder: `30s`, `0s`, or `forever`.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: WaitArg,
    /// Share the lock with others that share it, for readers.
    #[arg(long)]
    shared: bool,
    /// So many may hold the key at once, each with a permit of its own; all who ask for the key say the same.
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "gateway"], value_parser = clap::value_parser!(u16).range(2..=1000))]
    permits: Option<u16>,
    /// The exit code where another holds the lock, and the wait is over. `0`: then there is nothing to do, and that is well.
    /// Default: 124, which `timeout` and other commands have as well.
    #[arg(short = 'E', long, value_name = "N")]
    conflict_exit_code: Option<u8>,
    #[command(flatten)]
    keeping: LockKeepingArgs,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub(super) struct ElectArgs {
    /// The name of the election. Its lock has the key `election/NAME`.
    #[arg(value_name = "NAME")]
    name: String,
    /// Stand for election again when the command has ended or the lead was lost, until SIGTERM. Without it the process ends.
    #[arg(long)]
    again: bool,
    /// The address of the leader for those who ask a gateway, such as `10.0.0.7:8080`.
    #[arg(long, value_name = "TEXT", requires = "gateway")]
    address: Option<String>,
    #[command(flatten)]
    keeping: LockKeepingArgs,
    /// The command of the leader and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How the lock is kept.
#[derive(Debug, Args)]
struct LockKeepingArgs {
    #[command(flatten)]
    way: LockSourceArgs,
    /// The time between SIGTERM and SIGKILL. Default: a third of the time for which a renewal proves the lock, or less if the next
    /// renewal needs that time.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    grace: Option<Duration>,
    /// Report on stderr what happens.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

#[derive(Debug, Clone)]
struct KeyArg(ResourceKey);

#[derive(Debug, Clone, Copy)]
struct WaitArg(LockWaitPolicy);

/// The command line cannot be carried out.
#[derive(Debug, thiserror::Error)]
enum RunLockedUsageError {
    #[error("FG0623: `{0}`: an election has a name of printable ASCII without spaces; nothing was run")]
    Name(String),
    #[error(
        "FG0624: a renewal proves the lock for {:?}, which leaves no time for `--grace {}`: at most {most:?}, or a longer `--ttl`; \
         nothing was run",
        .renewals.proves, humantime::format_duration(*.grace)
    )]
    Grace { renewals: LockRenewalSchedule, grace: Duration, most: Duration },
    #[error(
        "FG0624: a renewal proves the lock for {:?}, and the next one comes after {:?}, which leaves no time to end a command: a \
         longer `--ttl`; nothing was run",
        .0.proves, .0.interval
    )]
    Short(LockRenewalSchedule),
}

impl RunLockedArgs {
    pub(super) fn run(self) -> ExitCode {
        let Self { key, wait, shared, permits, conflict_exit_code, keeping, command } = self;
        let access = if shared { CommandLockMode::Shared } else { CommandLockMode::Exclusive };
        let wanted = CommandLockSpec { key: key.0, access, permits, wait: wait.0 };
        keeping.run_locked(wanted, command, CommandRerunPolicy::Once, None, conflict_exit_code)
    }

    pub(super) fn is_verbose(&self) -> bool {
        self.keeping.verbose
    }
}

impl ElectArgs {
    pub(super) fn run(self) -> ExitCode {
        let Self { name, again, address, keeping, command } = self;
        let key = format!("election/{name}");
        if ResourceKey::parse(&key).is_err() {
            return exit_not_run(&RunLockedUsageError::Name(name));
        }
        let key = match ResourceKey::parse_user_input(&key) {
            Ok(key) => key,
            Err(bad) => return exit_not_run(&bad),
        };
        let wanted = CommandLockSpec {
            key,
            access: CommandLockMode::Exclusive,
            permits: None,
            wait: LockWaitPolicy::Forever,
        };
        keeping.run_locked(
            wanted,
            command,
            if again { CommandRerunPolicy::Repeatedly } else { CommandRerunPolicy::Once },
            address,
            // An election waits forever, so it never ends with a conflict.
            None,
        )
    }

    pub(super) fn is_verbose(&self) -> bool {
        self.keeping.verbose
    }
}

impl LockKeepingArgs {
    fn run_locked(
        self,
        wanted: CommandLockSpec,
        command: Vec<OsString>,
        turns: CommandRerunPolicy,
        note: Option<String>,
        conflict_exit_code: Option<u8>,
    ) -> ExitCode {
        // `source` has reported the mistake.
        let Ok(mut source) = self.way.source(&wanted.key, note) else { return ExitCode::from(NOT_RUN) };
        if let Err(unfit) = check_grace(self.grace, source.renewals_before_acquire()) {
            return exit_not_run(&unfit);
        }
        let charge = LockedCommand { key: wanted.key.clone(), command, grace: self.grace };
        let campaign = LockedRunSpec { spec: wanted, command: charge, repeat: turns };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return exit_not_run(&RunCommandError::from(error)),
        };
        runtime.block_on(async {
            let mut house = match CommandRunner::open() {
                Ok(house) => house,
                Err(error) => return exit_not_run(&RunCommandError::from(error)),
            };
            let key = &campaign.spec.key;
            let done = campaign
                .run(&mut house, &mut source, |stage| report_progress(key, &stage, self.verbose))
                .await;
            source.close().await;
            done.map_or_else(
                |error| {
                    let code = error.exit_code(conflict_exit_code);
                    // A conflict with exit code 0 is expected, so it is not reported: cron would send a mail for each
                    // message.
                    if code != 0 || self.verbose {
                        print_error(format_args!(
                            "error: {}",
                            fencegate_process::display::error_chain(&error)
                        ));
                        if waits_for_parent(&error, env::var(FENCING_KEY).ok().as_deref()) {
                            print_error(
                                "the command that this one runs under holds the same key (FENCING_KEY)",
                            );
                        }
                    }
                    ExitCode::from(code)
                },
                ExitCode::from,
            )
        })
    }
}

/// The environment variable with the key of the lock under which a command runs.
const FENCING_KEY: &str = "FENCING_KEY";

/// Whether the lock is most likely held by the command that has started this one. That command cannot end before this
/// one, so a wait would never end.
fn waits_for_parent(error: &RunCommandError, key_of_parent: Option<&str>) -> bool {
    matches!(error, RunCommandError::NoLock(AcquireLockError::Held(key)) if Some(key.as_str()) == key_of_parent)
}

fn exit_not_run(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    print_error(format_args!("error: {}", fencegate_process::display::error_chain(error)));
    ExitCode::from(NOT_RUN)
}

/// Checks that the grace leaves time for the next renewal. Without a schedule nothing is checked: a gateway tells only
/// with the lease how long a renewal proves the lock.
fn check_grace(
    grace: Option<Duration>,
    renewals: Option<LockRenewalSchedule>,
) -> Result<(), RunLockedUsageError> {
    let Some(renewals) = renewals else { return Ok(()) };
    let most = renewals.longest_grace().ok_or(RunLockedUsageError::Short(renewals))?;
    match grace {
        Some(grace) if grace > most => Err(RunLockedUsageError::Grace { renewals, grace, most }),
        _ => Ok(()),
    }
}

fn report_progress(key: &ResourceKey, stage: &CommandProgress<'_>, verbose: bool) {
    match stage {
        CommandProgress::Lost(lost, proven) => print_error(format_args!(
            "error: FG0622: the lock of `{key}` {}; the command was ended (proven until {:.6} s after boot)",
            match lost {
                LockLossReason::Taken => "was taken away, or its session was ended",
                LockLossReason::Unproven => "could not be renewed in time",
                LockLossReason::Revoked => "was wanted back by an operator",
                LockLossReason::SupervisorLost =>
                    "has nobody who watches over its command: that process was stopped or killed",
            },
            Duration::from_nanos(proven.as_nanos()).as_secs_f64()
        )),
        _ if !verbose => {}
        CommandProgress::Waiting => print_error(format_args!("waits for the lock of `{key}`")),
        CommandProgress::Holding(lock) => {
            print_error(format_args!("holds the lock of `{key}` under {}", lock.info.token))
        }
        CommandProgress::Exited(code) => {
            print_error(format_args!(
                "the command has ended with {code}, and the lock of `{key}` is given back"
            ));
        }
    }
}

impl FromStr for KeyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ResourceKey::parse_user_input(text).map(Self).map_err(|error| error.to_string())
    }
}

impl FromStr for WaitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forever" => Ok(Self(LockWaitPolicy::Forever)),
            time => humantime::parse_duration(time)
                .map(|wait| Self(LockWaitPolicy::For(wait)))
                .map_err(|error| format!("{error}; or `forever`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn grace_leaves_time_for_late_renewals() {
        let renewals = |proves| Some(LockRenewalSchedule { proves, interval: SECOND });
        let of = |grace: u32, proves: u32| check_grace(Some(grace * SECOND), renewals(proves * SECOND));
        assert!(
            of(4, 9).is_ok()
                && check_grace(None, renewals(2 * SECOND)).is_ok()
                && check_grace(Some(SECOND), None).is_ok()
        );
        for (refused, most) in [(of(5, 9), "at most 4.5s"), (of(1, 2), "at most 575ms")] {
            let refused = refused.expect_err("no time").to_string();
            assert!(refused.contains("FG0624") && refused.contains(most), "{refused}");
        }
        let short = check_grace(None, renewals(SECOND)).expect_err("no time for any command").to_string();
        assert!(short.contains("FG0624") && short.contains("`--ttl`"), "{short}");
    }

    /// A conflict with another holder ends with the exit code that the user has chosen. All other failures keep their
    /// codes.
    #[test]
    fn conflict_has_own_exit_code() {
        let held =
            RunCommandError::NoLock(AcquireLockError::Held(ResourceKey::parse("job/1").expect("a key")));
        let interrupted = RunCommandError::Interrupted("SIGTERM");
        for (conflict, held_code) in [(None, 124), (Some(0), 0), (Some(75), 75)] {
            assert_eq!(held.exit_code(conflict), held_code);
            assert_eq!(interrupted.exit_code(conflict), 125);
        }
    }

    /// A command that waits for the key of its own parent gets a message about it, and no other command does.
    #[test]
    fn lock_of_parent_is_told() {
        let held =
            RunCommandError::NoLock(AcquireLockError::Held(ResourceKey::parse("job/1").expect("a key")));
        assert!(waits_for_parent(&held, Some("job/1")));
        for other in [None, Some("job/2"), Some(""), Some("job/1/2")] {
            assert!(!waits_for_parent(&held, other), "{other:?}");
        }
        assert!(!waits_for_parent(&RunCommandError::Interrupted("SIGTERM"), Some("job/1")));
    }

    #[test]
    fn wait_is_duration_or_forever() {
        assert!(matches!("0s".parse(), Ok(WaitArg(LockWaitPolicy::For(Duration::ZERO)))));
        assert!(matches!("forever".parse(), Ok(WaitArg(LockWaitPolicy::Forever))));
        assert!("long".parse::<WaitArg>().is_err());
    }
}
