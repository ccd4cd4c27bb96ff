//! The parent of a command. It ends the command before another could hold the lock, if nobody says in time that the
//! lock is still held.

use std::{
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use fencegate_process::clock::{Boot, Clock, MachineClock};
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
    last_moments::{LastMoments, Ripe},
    orders::Orders,
    passed_on::Passed,
    reaped::{Children, Reaped, code},
    started_anew::{BECOMING, OURSELVES, WATCHMAN},
    terminal::CommandGroup,
    told::{Because, ToKeeper, ToWatchman},
};

/// One command, from start to end.
struct Watch {
    command: Pid,
    group: CommandGroup,
    all: Descendants,
    moments: LastMoments,
    /// Until when the lock is proven, by the last message.
    proven: Boot,
    /// This process has asked the command to end.
    asked: bool,
    /// The command was killed. Reported once.
    killed: bool,
    /// The exit code of the command, and why it ended.
    ended: Option<(u8, Because)>,
    keeper: Option<OwnedWriteHalf>,
}

/// The interval at which remaining processes are killed again: new ones may have been started meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    let orders = Orders::read(&mut arguments);
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
    orders: Orders,
    command: Vec<OsString>,
    socket: std::os::unix::net::UnixStream,
    input: OwnedFd,
) -> io::Result<()> {
    // The name for `ps` and `pkill`. If it cannot be set, nothing depends on it.
    fs::write("/proc/self/comm", WATCHMAN).ok();
    socket.set_nonblocking(true)?;
    let (heard, keeper) = UnixStream::from_std(socket)?.into_split();
    let timer = BootTimer::new()?;
    let mut children = Children::adopt()?;
    // Signals for the command come from the keeper. If they reach this process, they must not end it and leave the
    // command alone.
    let mut ours = Passed::listen()?;
    let mut watch = Watch::start(orders, command, input, keeper)?;
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
async fn next(lines: &mut Option<Lines<BufReader<OwnedReadHalf>>>) -> Option<ToWatchman> {
    match lines {
        Some(lines) => ToWatchman::parse(&lines.next_line().await.ok()??),
        None => std::future::pending().await,
    }
}

impl Watch {
    fn start(
        orders: Orders,
        command: Vec<OsString>,
        input: OwnedFd,
        keeper: OwnedWriteHalf,
    ) -> io::Result<Self> {
        let Orders { group, grace, until } = orders;
        let number = match group {
            CommandGroup::Own => 0,
            CommandGroup::Ours(group) => group.as_raw_nonzero().get(),
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
        let own = (group == CommandGroup::Own).then_some(command);
        let all = Descendants { of: getpid(), but: None, group: own };
        let moments = LastMoments::of(until, grace);
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

    fn obeys(&mut self, told: ToWatchman) {
        match told {
            ToWatchman::Until(until) => {
                if until != Boot::from_nanos(0) {
                    self.proven = until;
                }
                self.moments.proven(until);
                self.says(ToKeeper::Heard);
            }
            ToWatchman::End => self.moments.end(MachineClock.now()),
            // Nobody has waited for the command yet, so its process id still belongs to it.
            ToWatchman::Pass(signal) if self.ended.is_none() => self.pass(signal),
            ToWatchman::Pass(_) => {}
        }
    }

    fn pass(&self, signal: Signal) {
        // A process that has ended or belongs to another user gets no signal.
        match self.group {
            CommandGroup::Own => kill_process_group(self.command, signal).ok(),
            CommandGroup::Ours(_) => kill_process(self.command, signal).ok(),
        };
    }

    /// Does what is due, and returns when the next step is due.
    fn look(&mut self, now: Boot) -> Boot {
        match self.moments.ripe(now, self.asked) {
            Ripe::Wait(until) => until,
            Ripe::Ask => {
                self.asked = true;
                self.moments.end(now);
                self.says(ToKeeper::Asked);
                self.all.ask();
                self.look(now)
            }
            Ripe::Kill => {
                if !self.killed {
                    self.killed = true;
                    self.says(ToKeeper::Asked);
                }
                self.all.kill();
                now + AGAIN
            }
        }
    }

    /// True if the command and all its descendants have ended, and nobody is left to wait for.
    fn is_over(&mut self, children: &mut Children) -> bool {
        loop {
            match children.next() {
                Reaped::One(process, status) if process == self.command => {
                    let because = if self.asked || self.killed { Because::Ended } else { Because::Itself };
                    self.ended = Some((code(status), because));
                    // The id may belong to another process from now on.
                    self.all.group = None;
                    // Processes that the command left behind would go on without the lock.
                    self.moments.end(MachineClock.now());
                }
                Reaped::One(..) => {}
                Reaped::GoOn => return false,
                Reaped::NoneLeft => return true,
            }
        }
    }

    /// Does not wait: a stopped keeper reads the message later, and a dead one never.
    fn says(&self, what: ToKeeper) {
        if let Some(keeper) = &self.keeper {
            channel::say(keeper, what);
        }
    }

    fn tells_the_end(self) {
        let (code, because) = self.ended.unwrap_or((NOT_RUN, Because::Ended));
        match self.keeper {
            Some(_) => self.says(ToKeeper::Over { code, because }),
            None => complain(&format!(
                "error: FG0622: the process that kept the lock is gone, and the command was ended with it (proven until {:.6} s \
                 after boot); the lock is free when its session or its lease is over",
                Duration::from_nanos(self.proven.as_nanos()).as_secs_f64()
            )),
        }
    }
}
