//! Keeps a lock while a command runs, and ends the command itself if its supervisor does not.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{net, process::CommandExt},
    },
    process::{Command, Stdio},
    time::Duration,
};

use fencegate_policies::key::ResourceKey;
use fencegate_process::{
    clock::{BootInstant, Clock, MachineClock},
    failpoint,
};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{MissedTickBehavior, interval},
};

use super::{
    boot_timer::BootClockTimer,
    channel,
    descendants::DescendantProcesses,
    lock_source::CommandLock,
    lock_spec::{CommandLockInfo, CommandLockStatus},
    program_names::{OURSELVES, WATCHMAN},
    protocol::{ExitCause, KeeperToSupervisor, SupervisorToKeeper},
    reaper::{ChildReaper, ReapOutcome},
    renewals::LOOK,
    signals::{self, SignalReceiver},
    supervisor_args::SupervisorArgs,
    terminal::ProcessGroup,
    termination::{KILLED_BEFORE, TerminationSchedule, TerminationStep},
};

/// The command to run, and its time to clean up.
#[derive(Debug, Clone)]
pub struct LockedCommand {
    pub key: ResourceKey,
    pub command: Vec<OsString>,
    /// The time between the request to end and the kill. Default: a third of the lock validity, or the longest grace
    /// that leaves time for a renewal if that is shorter.
    pub grace: Option<Duration>,
}

/// The longest default of `grace`.
const LONGEST_GRACE: Duration = Duration::from_secs(10);

/// The resources that the process needs once for all commands that it runs.
pub struct CommandRunner {
    children: ChildReaper,
    signals: SignalReceiver,
    timer: BootClockTimer,
    group: ProcessGroup,
    /// The signal that has ended this process, and not only the command.
    ending: Option<&'static str>,
}

/// How a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandExit {
    /// The command has exited by itself, with this code.
    Exited(u8),
    /// The command was ended, because the lock was lost. The second field is the instant until which the lock
    /// was valid.
    Terminated(LockLossReason, BootInstant),
}

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockLossReason {
    /// The lock was broken, or its session ended.
    Taken,
    /// The lock was not renewed in time.
    Unproven,
    /// An operator requested that the holder release it.
    Revoked,
    /// One of the two processes that watch over the command was stopped or killed.
    SupervisorLost,
}

/// The lock keeper's view of one command and its supervisor.
struct CommandLockKeeper<'h> {
    lock: &'h CommandLock,
    supervisor: OwnedWriteHalf,
    /// The instant until which the lock is valid, as last known.
    proven: BootInstant,
    schedule: TerminationSchedule,
    /// All descendants but the supervisor, which is ended last.
    descendants: DescendantProcesses,
    terminating: bool,
    lost: Option<LockLossReason>,
    /// The number of messages to the supervisor without an answer.
    unanswered: u32,
    /// Whether the supervisor has ended, or does not answer.
    unsupervised: bool,
}

/// After this many checks without an answer (three seconds) the supervisor counts as stopped.
const SILENT: u32 = 30;
/// How much later than the supervisor the lock keeper acts. It still acts before another holder could get the lock.
const SECOND: Duration = Duration::from_millis(60);
/// The interval of the checks whether all killed processes are gone.
const AGAIN: Duration = Duration::from_millis(10);

impl CommandRunner {
    /// Opens the resources.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a resource that is needed.
    pub fn open() -> io::Result<Self> {
        let children = ChildReaper::become_subreaper()?;
        let signals = SignalReceiver::listen_for_signals()?;
        Ok(Self {
            children,
            signals,
            timer: BootClockTimer::new()?,
            group: ProcessGroup::from_controlling_terminal(),
            ending: None,
        })
    }

    /// Returns when this process must end, with the name of the signal.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal.
    pub async fn wait_for_termination(&mut self) -> &'static str {
        loop {
            tokio::select! {
                signal = self.signals.next() => if signals::is_termination(signal) {
                    return signals::signal_name(signal);
                },
                // PID 1 is the parent of all orphans, and has to wait for them.
                () = self.children.wait_child_exit() => while let ReapOutcome::Exited(..) = self.children.reap_next() {},
            }
        }
    }

    /// The signal that was passed to the command and that requests its end. A hangup may mean something else.
    pub fn forwarded_termination_signal(&self) -> Option<&'static str> {
        self.ending
    }

    /// Runs the command under the lock. Returns when the command and all its descendants have ended.
    ///
    /// # Errors
    /// Returns an error if the supervisor cannot be started. Nothing was run then.
    ///
    /// # Cancellation
    /// The future must not be dropped: the command would be killed, and would not be waited for.
    pub async fn run(&mut self, command: &LockedCommand, lock: &CommandLock) -> io::Result<CommandExit> {
        let until = match lock.status() {
            CommandLockStatus::Proven(until) => until,
            CommandLockStatus::Revoked(until) => {
                return Ok(CommandExit::Terminated(LockLossReason::Revoked, until));
            }
            CommandLockStatus::Lost => {
                return Ok(CommandExit::Terminated(LockLossReason::Taken, MachineClock.now()));
            }
        };
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // Everything that can fail comes before the command gets its input, without which it does not begin.
        failpoint::pass("before_command_is_watched");
        let ours = UnixStream::from_std(ours)?;
        let proves = until.since(MachineClock.now());
        let longest = lock.renewals.longest_grace().unwrap_or(Duration::ZERO).min(proves / 2);
        let grace = command.grace.unwrap_or((proves / 3).min(LONGEST_GRACE)).min(longest);
        let orders = SupervisorArgs { group: self.group, grace, until };
        let supervisor = spawn_supervisor(command, &lock.info, orders, theirs)?;
        channel::send_stdin_fd(&ours)?;
        let (reader, to) = ours.into_split();
        let mut keep = CommandLockKeeper {
            lock,
            supervisor: to,
            proven: until,
            schedule: TerminationSchedule::new(until, grace).with_standby_kill_delay(SECOND),
            descendants: DescendantProcesses { root: getpid(), excluded: Some(supervisor), group: None },
            terminating: false,
            lost: None,
            unanswered: 0,
            unsupervised: false,
        };
        Ok(keep.run(self, BufReader::new(reader).lines()).await)
    }
}

/// Starts the supervisor in a process group of its own, so that keys typed at a terminal do not stop it.
fn spawn_supervisor(
    command: &LockedCommand,
    shown: &CommandLockInfo,
    orders: SupervisorArgs,
    socket: net::UnixStream,
) -> io::Result<Pid> {
    let mut supervisor = Command::new(OURSELVES);
    supervisor.arg0(WATCHMAN).args(orders.to_args()).args(&command.command);
    supervisor.stdin(Stdio::from(OwnedFd::from(socket))).process_group(0);
    supervisor.env("FENCING_KEY", command.key.as_str());
    supervisor.env("FENCING_TOKEN", &shown.token).env("FENCING_NUMBER", shown.number.to_string());
    let permit = shown.permit.map(|permit| permit.to_string());
    // For a command inside another one, variables of the outer lock must not look like those of the inner one.
    for (name, value) in [("FENCING_LEASE", &shown.lease), ("FENCING_PERMIT", &permit)] {
        match value {
            Some(value) => supervisor.env(name, value),
            None => supervisor.env_remove(name),
        };
    }
    Ok(Pid::from_child(&supervisor.spawn()?))
}

impl CommandLockKeeper<'_> {
    async fn run(
        &mut self,
        runner: &mut CommandRunner,
        mut lines: Lines<BufReader<OwnedReadHalf>>,
    ) -> CommandExit {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.enforce_termination(MachineClock.now());
            if self.unsupervised && !self.descendants.any_alive() {
                return self.clean_up(runner).await;
            }
            tokio::select! {
                _ = looks.tick() => self.check_lock(),
                next_line = lines.next_line(), if !self.unsupervised => match next_line {
                    Ok(Some(line)) => match SupervisorToKeeper::parse(&line) {
                        Some(SupervisorToKeeper::Exited { code, because }) => return self.finish(runner, code, because).await,
                        Some(SupervisorToKeeper::Terminating) => self.terminating = true,
                        Some(SupervisorToKeeper::Acknowledged) | None => self.unanswered = 0,
                    },
                    Ok(None) | Err(_) => self.take_over_from_supervisor(),
                },
                signal = runner.signals.next() => {
                    if signals::is_termination(signal) && signal != Signal::HUP {
                        runner.ending = Some(signals::signal_name(signal));
                    }
                    self.forward_signal(signal, runner.group);
                }
                () = runner.children.wait_child_exit() => while self.reap(runner) {},
                waited = runner.timer.sleep_until(due) => if waited.is_err() {
                    // Without a timer nothing would be on time, so the lock counts as lost.
                    self.schedule.set_proven_until(BootInstant::from_nanos(0));
                },
            }
        }
    }

    fn check_lock(&mut self) {
        let until = match self.lock.status() {
            CommandLockStatus::Proven(until) => until,
            CommandLockStatus::Revoked(until) => {
                if !self.schedule.is_ending() {
                    self.lost = Some(LockLossReason::Revoked);
                    self.send(KeeperToSupervisor::Terminate);
                    self.schedule.begin_termination(MachineClock.now());
                }
                until
            }
            CommandLockStatus::Lost => {
                self.lost.get_or_insert(if self.is_unproven() {
                    LockLossReason::Unproven
                } else {
                    LockLossReason::Taken
                });
                BootInstant::from_nanos(0)
            }
        };
        if until != BootInstant::from_nanos(0) {
            self.proven = until;
        }
        self.schedule.set_proven_until(until);
        self.send(KeeperToSupervisor::Until(until));
        self.unanswered += 1;
        if self.unanswered > SILENT && !self.unsupervised {
            self.take_over_from_supervisor();
        }
    }

    /// True if the lock validity has ended, or is about to.
    fn is_unproven(&self) -> bool {
        MachineClock.now() + KILLED_BEFORE >= self.proven
    }

    /// Begins to end the command, because from now on no other process can end it.
    fn take_over_from_supervisor(&mut self) {
        self.unsupervised = true;
        self.lost.get_or_insert(LockLossReason::SupervisorLost);
        self.schedule.begin_termination(MachineClock.now());
    }

    /// Takes the steps that the supervisor should have taken by now. Returns when the next step is due.
    fn enforce_termination(&mut self, now: BootInstant) -> BootInstant {
        match self.schedule.next_step(now, self.terminating) {
            TerminationStep::Wait(until) if self.unsupervised => until.min(now + AGAIN),
            TerminationStep::Wait(until) => until,
            TerminationStep::Terminate => {
                self.terminating = true;
                self.descendants.terminate_descendants();
                now + AGAIN
            }
            TerminationStep::Kill => {
                self.descendants.kill_descendants();
                // The kernel kills the command together with the supervisor, in case we have not found the command.
                self.kill_supervisor();
                self.unsupervised = true;
                now + AGAIN
            }
        }
    }

    fn forward_signal(&self, signal: Signal, group: ProcessGroup) {
        if !(signals::is_terminal_signal(signal) && group.is_in_foreground()) {
            self.send(KeeperToSupervisor::Signal(signal));
        }
    }

    /// Sends a message without waiting: a supervisor that is stopped reads it later.
    fn send(&self, what: KeeperToSupervisor) {
        channel::send_message(&self.supervisor, what);
    }

    fn kill_supervisor(&self) {
        // The supervisor was not reaped yet, so its process id still belongs to it.
        if let Some(supervisor) = self.descendants.excluded {
            kill_process(supervisor, Signal::KILL).ok();
        }
    }

    /// Kills the supervisor after it has reported that no process is left below it.
    async fn finish(&mut self, runner: &mut CommandRunner, code: u8, because: ExitCause) -> CommandExit {
        self.kill_supervisor();
        while self.descendants.excluded.is_some() {
            if !self.reap(runner) {
                runner.children.wait_child_exit().await;
            }
        }
        match because {
            ExitCause::Exited => CommandExit::Exited(code),
            ExitCause::Terminated => self.lock_loss_exit(),
        }
    }

    /// Ends all that the command has started.
    async fn clean_up(&mut self, runner: &mut CommandRunner) -> CommandExit {
        self.kill_supervisor();
        // After the supervisor's end its descendants become our children. A list of processes is no snapshot: only
        // the kernel's report that there is no child proves that none has been reparented to us meanwhile.
        loop {
            match runner.children.reap_next() {
                ReapOutcome::Exited(process, _) => self.descendants.clear_exclusion(process),
                ReapOutcome::NoChildren => return self.lock_loss_exit(),
                ReapOutcome::StillRunning => {
                    self.descendants.kill_descendants();
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    fn lock_loss_exit(&self) -> CommandExit {
        CommandExit::Terminated(self.lost.unwrap_or(LockLossReason::Unproven), self.proven)
    }

    /// Waits for one child that has ended; `false` where there is none.
    fn reap(&mut self, runner: &mut CommandRunner) -> bool {
        let ReapOutcome::Exited(process, _) = runner.children.reap_next() else { return false };
        self.descendants.clear_exclusion(process);
        true
    }
}
