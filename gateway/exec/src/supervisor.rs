//! The parent of a command. It ends the command before another holder could have the lock, unless it receives in time
//! that the lock is still held.

use std::{
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use fencegate_process::clock::{BootInstant, Clock, MachineClock};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{
    boot_timer::BootClockTimer,
    channel,
    descendants::DescendantProcesses,
    exit_code::{NOT_RUN, print_error, refuse_manual_start},
    program_names::{BECOMING, OURSELVES, WATCHMAN},
    protocol::{ExitCause, KeeperToSupervisor, SupervisorToKeeper},
    reaper::{ChildReaper, ReapOutcome, shell_exit_code},
    signals::SignalReceiver,
    supervisor_args::SupervisorArgs,
    terminal::ProcessGroup,
    termination::{TerminationSchedule, TerminationStep},
};

/// One command, from start to end.
struct CommandSupervisor {
    command: Pid,
    group: ProcessGroup,
    descendants: DescendantProcesses,
    schedule: TerminationSchedule,
    /// The instant until which the lock is valid, by the last message.
    proven: BootInstant,
    /// Whether this process has requested that the command end.
    terminating: bool,
    /// Whether the command was killed. It is reported once.
    killed: bool,
    /// The exit code of the command, and the cause of its end.
    ended: Option<(u8, ExitCause)>,
    keeper: Option<OwnedWriteHalf>,
}

/// The interval at which remaining processes are killed again: new ones may have been started meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    let orders = SupervisorArgs::parse(&mut arguments);
    let (Some(orders), Some(_)) = (orders, arguments.peek()) else { return refuse_manual_start() };
    let Ok((socket, input)) = channel::receive_socket_and_stdin() else { return refuse_manual_start() };
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(supervise(orders, arguments.collect(), socket, input)));
    done.map_or_else(
        |error| {
            print_error(&format!("error: watch over a command: {error}"));
            ExitCode::from(NOT_RUN)
        },
        |()| ExitCode::SUCCESS,
    )
}

async fn supervise(
    orders: SupervisorArgs,
    command: Vec<OsString>,
    socket: std::os::unix::net::UnixStream,
    input: OwnedFd,
) -> io::Result<()> {
    // The name for `ps` and `pkill`. If it cannot be set, nothing depends on it.
    fs::write("/proc/self/comm", WATCHMAN).ok();
    socket.set_nonblocking(true)?;
    let (reader, keeper) = UnixStream::from_std(socket)?.into_split();
    let timer = BootClockTimer::new()?;
    let mut children = ChildReaper::become_subreaper()?;
    // Signals for the command come from the lock keeper. If they reach this process, they must not end it and leave
    // the command alone.
    let mut ours = SignalReceiver::listen_for_signals()?;
    let mut watch = CommandSupervisor::start(orders, command, input, keeper)?;
    let mut lines = Some(BufReader::new(reader).lines());
    loop {
        if watch.poll_finished(&mut children) {
            watch.report_exit();
            return Ok(());
        }
        let due = watch.run_termination_steps(MachineClock.now());
        tokio::select! {
            message = next_message(&mut lines) => match message {
                Some(message) => watch.handle(message),
                None => {
                    (lines, watch.keeper) = (None, None);
                    watch.schedule.begin_termination(MachineClock.now());
                }
            },
            () = children.wait_child_exit() => {}
            _signal = ours.next() => {}
            waited = timer.sleep_until(due) => waited?,
        }
    }
}

/// The next message. `None` if the lock keeper has ended. A line that cannot be read is ignored.
async fn next_message(lines: &mut Option<Lines<BufReader<OwnedReadHalf>>>) -> Option<KeeperToSupervisor> {
    match lines {
        Some(lines) => KeeperToSupervisor::parse(&lines.next_line().await.ok()??),
        None => std::future::pending().await,
    }
}

impl CommandSupervisor {
    fn start(
        orders: SupervisorArgs,
        command: Vec<OsString>,
        input: OwnedFd,
        keeper: OwnedWriteHalf,
    ) -> io::Result<Self> {
        let SupervisorArgs { group, grace, until } = orders;
        let number = match group {
            ProcessGroup::Own => 0,
            ProcessGroup::Shared(group) => group.as_raw_nonzero().get(),
        };
        // The command is started by the first thread, which lives as long as the process. For the kernel the
        // parent of a process is a thread, and at the end of that thread it kills the command.
        let child = Command::new(OURSELVES)
            .arg0(BECOMING)
            .arg(getpid().to_string())
            .arg(until.as_nanos().to_string())
            .args(command)
            .stdin(Stdio::from(input))
            .process_group(number)
            .spawn()?;
        let command = Pid::from_child(&child);
        let own = (group == ProcessGroup::Own).then_some(command);
        let all = DescendantProcesses { root: getpid(), excluded: None, group: own };
        let moments = TerminationSchedule::new(until, grace);
        Ok(Self {
            command,
            group,
            descendants: all,
            schedule: moments,
            proven: until,
            terminating: false,
            killed: false,
            ended: None,
            keeper: Some(keeper),
        })
    }

    fn handle(&mut self, message: KeeperToSupervisor) {
        match message {
            KeeperToSupervisor::Until(until) => {
                if until != BootInstant::from_nanos(0) {
                    self.proven = until;
                }
                self.schedule.set_proven_until(until);
                self.send(SupervisorToKeeper::Acknowledged);
            }
            KeeperToSupervisor::Terminate => self.schedule.begin_termination(MachineClock.now()),
            // The command was not reaped yet, so its process id still belongs to it.
            KeeperToSupervisor::Signal(signal) if self.ended.is_none() => self.forward_signal(signal),
            KeeperToSupervisor::Signal(_) => {}
        }
    }

    fn forward_signal(&self, signal: Signal) {
        // A process that has ended or belongs to another user gets no signal.
        match self.group {
            ProcessGroup::Own => kill_process_group(self.command, signal).ok(),
            ProcessGroup::Shared(_) => kill_process(self.command, signal).ok(),
        };
    }

    /// Takes the steps that are due, and returns when the next one is due.
    fn run_termination_steps(&mut self, now: BootInstant) -> BootInstant {
        match self.schedule.next_step(now, self.terminating) {
            TerminationStep::Wait(until) => until,
            TerminationStep::Terminate => {
                self.terminating = true;
                self.schedule.begin_termination(now);
                self.send(SupervisorToKeeper::Terminating);
                self.descendants.terminate_descendants();
                self.run_termination_steps(now)
            }
            TerminationStep::Kill => {
                if !self.killed {
                    self.killed = true;
                    self.send(SupervisorToKeeper::Terminating);
                }
                self.descendants.kill_descendants();
                now + AGAIN
            }
        }
    }

    /// True if the command and all its descendants have ended, and no child is left to wait for.
    fn poll_finished(&mut self, children: &mut ChildReaper) -> bool {
        loop {
            match children.reap_next() {
                ReapOutcome::Exited(process, status) if process == self.command => {
                    let because = if self.terminating || self.killed {
                        ExitCause::Terminated
                    } else {
                        ExitCause::Exited
                    };
                    self.ended = Some((shell_exit_code(status), because));
                    // The id of the process group may belong to another group from now on.
                    self.descendants.group = None;
                    // Processes that the command left behind would go on without the lock.
                    self.schedule.begin_termination(MachineClock.now());
                }
                ReapOutcome::Exited(..) => {}
                ReapOutcome::StillRunning => return false,
                ReapOutcome::NoChildren => return true,
            }
        }
    }

    /// Sends a message without waiting: a stopped lock keeper reads it later, and a dead one never.
    fn send(&self, what: SupervisorToKeeper) {
        if let Some(keeper) = &self.keeper {
            channel::send_message(keeper, what);
        }
    }

    fn report_exit(self) {
        let (code, because) = self.ended.unwrap_or((NOT_RUN, ExitCause::Terminated));
        match self.keeper {
            Some(_) => self.send(SupervisorToKeeper::Exited { code, because }),
            None => print_error(&format!(
                "error: FG0622: the process that kept the lock is gone, and the command was ended with it (proven until {:.6} s \
                 after boot); the lock is free when its session or its lease is over",
                Duration::from_nanos(self.proven.as_nanos()).as_secs_f64()
            )),
        }
    }
}
