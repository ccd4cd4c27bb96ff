//! The parent of a command: ends it before its lock could be another's, when nobody says in time that the lock is held still.

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

/// One command, from its start to its end.
struct Watch {
    command: Pid,
    group: CommandGroup,
    all: Descendants,
    moments: LastMoments,
    /// The lock was proven until then, as was said last.
    proven: Boot,
    /// It was asked to end, by us.
    asked: bool,
    /// Whoever comes too late to be asked is killed; told once.
    killed: bool,
    /// How the command itself has ended, and why.
    ended: Option<(u8, Because)>,
    keeper: Option<OwnedWriteHalf>,
}

/// The rhythm in which whatever is left is killed once more: a process may have been made meanwhile.
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
    // As `ps` and `pkill` know it; nobody is wronged where it cannot be said.
    fs::write("/proc/self/comm", WATCHMAN).ok();
    socket.set_nonblocking(true)?;
    let (heard, keeper) = UnixStream::from_std(socket)?.into_split();
    let timer = BootTimer::new()?;
    let mut children = Children::adopt()?;
    // They are for the command, and come by way of the keeper. Ours would end us, and leave the command alone.
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

/// `None`: the keeper is gone. What cannot be understood is nobody's word.
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
        // By the first thread, which lives as long as the process: the kernel counts a thread as the parent.
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
            // Nobody has waited for it yet, so its number is its own.
            ToWatchman::Pass(signal) if self.ended.is_none() => self.pass(signal),
            ToWatchman::Pass(_) => {}
        }
    }

    fn pass(&self, signal: Signal) {
        // One that has ended already, or is another user's, gets none.
        match self.group {
            CommandGroup::Own => kill_process_group(self.command, signal).ok(),
            CommandGroup::Ours(_) => kill_process(self.command, signal).ok(),
        };
    }

    /// Does what is due, and says when the next thing is.
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

    /// The command and whatever came of it has ended, and was waited for.
    fn is_over(&mut self, children: &mut Children) -> bool {
        loop {
            match children.next() {
                Reaped::One(process, status) if process == self.command => {
                    let because = if self.asked || self.killed { Because::Ended } else { Because::Itself };
                    self.ended = Some((code(status), because));
                    // Its number may be another's from now on.
                    self.all.group = None;
                    // What it has left behind would work on without the lock.
                    self.moments.end(MachineClock.now());
                }
                Reaped::One(..) => {}
                Reaped::GoOn => return false,
                Reaped::NoneLeft => return true,
            }
        }
    }

    /// A keeper that is stopped reads it later, and one that is gone never: nothing waits for it.
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
