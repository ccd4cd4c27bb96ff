//! The parent of a command. It ends the command before another could hold the lock, if nobody says in time that the
//! lock is still held.

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
    boot_timer::BootTimer,
    channel,
    descendants::Descendants,
    exit_code::{NOT_RUN, complain, misplaced},
    last_moments::{TerminationSchedule, TerminationStep},
    orders::SupervisorArgs,
    passed_on::SignalForwarder,
    reaped::{ChildReaper, ReapOutcome, code},
    started_anew::{BECOMING, OURSELVES, WATCHMAN},
    terminal::ProcessGroup,
    told::{ExitCause, KeeperMessage, SupervisorMessage},
};

/// One command, from start to end.
struct Supervisor {
    command: Pid,
    group: ProcessGroup,
    all: Descendants,
    moments: TerminationSchedule,
    /// Until when the lock is proven, by the last message.
    proven: BootInstant,
    /// This process has asked the command to end.
    asked: bool,
    /// The command was killed. Reported once.
    killed: bool,
    /// The exit code of the command, and why it ended.
    ended: Option<(u8, ExitCause)>,
    keeper: Option<OwnedWriteHalf>,
}

/// The interval at which remaining processes are killed again: new ones may have been started meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    let orders = SupervisorArgs::read(&mut arguments);
    let (Some(orders), Some(_)) = (orders, arguments.peek()) else { return misplaced() };
    let Ok((socket, input)) = channel::taken_over() else { return misplaced() };
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(watch(orders, arguments.collect(), socket, input)));
    done.map_or_else(
        |error| {
            complain(&format!("error: watch over a command: {error}"));
            ExitCode::from(NOT_RUN)
        },
        |()| ExitCode::SUCCESS,
    )
}

async fn watch(
    orders: SupervisorArgs,
    command: Vec<OsString>,
    socket: std::os::unix::net::UnixStream,
    input: OwnedFd,
) -> io::Result<()> {
    // The name for `ps` and `pkill`. If it cannot be set, nothing depends on it.
    fs::write("/proc/self/comm", WATCHMAN).ok();
    socket.set_nonblocking(true)?;
    let (heard, keeper) = UnixStream::from_std(socket)?.into_split();
    let timer = BootTimer::new()?;
    let mut children = ChildReaper::adopt()?;
    // Signals for the command come from the keeper. If they reach this process, they must not end it and leave the
    // command alone.
    let mut ours = SignalForwarder::listen()?;
    let mut watch = Supervisor::start(orders, command, input, keeper)?;
    let mut lines = Some(BufReader::new(heard).lines());
    loop {
        if watch.is_over(&mut children) {
            watch.tells_the_end();
            return Ok(());
        }
        let due = watch.look(MachineClock.now());
        tokio::select! {
            told = next(&mut lines) => match told {
                Some(told) => watch.obeys(told),
                None => {
                    (lines, watch.keeper) = (None, None);
                    watch.moments.end(MachineClock.now());
                }
            },
            () = children.changed() => {}
            _signal = ours.next() => {}
            waited = timer.until(due) => waited?,
        }
    }
}

/// `None` if the keeper has ended. A line that cannot be read is ignored.
async fn next(lines: &mut Option<Lines<BufReader<OwnedReadHalf>>>) -> Option<SupervisorMessage> {
    match lines {
        Some(lines) => SupervisorMessage::parse(&lines.next_line().await.ok()??),
        None => std::future::pending().await,
    }
}

impl Supervisor {
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
        // Started by the first thread, which lives as long as the process: to the kernel the parent is a thread.
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
        let all = Descendants { of: getpid(), but: None, group: own };
        let moments = TerminationSchedule::of(until, grace);
        Ok(Self {
            command,
            group,
            all,
            moments,
            proven: until,
            asked: false,
            killed: false,
            ended: None,
            keeper: Some(keeper),
        })
    }

    fn obeys(&mut self, told: SupervisorMessage) {
        match told {
            SupervisorMessage::Until(until) => {
                if until != BootInstant::from_nanos(0) {
                    self.proven = until;
                }
                self.moments.proven(until);
                self.says(KeeperMessage::Acknowledged);
            }
            SupervisorMessage::Terminate => self.moments.end(MachineClock.now()),
            // Nobody has waited for the command yet, so its process id still belongs to it.
            SupervisorMessage::Signal(signal) if self.ended.is_none() => self.pass(signal),
            SupervisorMessage::Signal(_) => {}
        }
    }

    fn pass(&self, signal: Signal) {
        // A process that has ended or belongs to another user gets no signal.
        match self.group {
            ProcessGroup::Own => kill_process_group(self.command, signal).ok(),
            ProcessGroup::Shared(_) => kill_process(self.command, signal).ok(),
        };
    }

    /// Does what is due, and returns when the next step is due.
    fn look(&mut self, now: BootInstant) -> BootInstant {
        match self.moments.ripe(now, self.asked) {
            TerminationStep::Wait(until) => until,
            TerminationStep::Terminate => {
                self.asked = true;
                self.moments.end(now);
                self.says(KeeperMessage::Terminating);
                self.all.ask();
                self.look(now)
            }
            TerminationStep::Kill => {
                if !self.killed {
                    self.killed = true;
                    self.says(KeeperMessage::Terminating);
                }
                self.all.kill();
                now + AGAIN
            }
        }
    }

    /// True if the command and all its descendants have ended, and nobody is left to wait for.
    fn is_over(&mut self, children: &mut ChildReaper) -> bool {
        loop {
            match children.next() {
                ReapOutcome::Exited(process, status) if process == self.command => {
                    let because =
                        if self.asked || self.killed { ExitCause::Terminated } else { ExitCause::Exited };
                    self.ended = Some((code(status), because));
                    // The id may belong to another process from now on.
                    self.all.group = None;
                    // Processes that the command left behind would go on without the lock.
                    self.moments.end(MachineClock.now());
                }
                ReapOutcome::Exited(..) => {}
                ReapOutcome::StillRunning => return false,
                ReapOutcome::NoChildren => return true,
            }
        }
    }

    /// Does not wait: a stopped keeper reads the message later, and a dead one never.
    fn says(&self, what: KeeperMessage) {
        if let Some(keeper) = &self.keeper {
            channel::say(keeper, what);
        }
    }

    fn tells_the_end(self) {
        let (code, because) = self.ended.unwrap_or((NOT_RUN, ExitCause::Terminated));
        match self.keeper {
            Some(_) => self.says(KeeperMessage::Exited { code, because }),
            None => complain(&format!(
                "error: FG0622: the process that kept the lock is gone, and the command was ended with it (proven until {:.6} s \
                 after boot); the lock is free when its session or its lease is over",
                Duration::from_nanos(self.proven.as_nanos()).as_secs_f64()
            )),
        }
    }
}
