//! Waits for children that have ended, also for those that were not ours when they began.

use std::io;

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus, wait},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// All children of this process: orphans of what we started come to us as well.
pub(super) struct Children(Signal);

/// What was found at a look.
#[derive(Debug)]
pub(super) enum Reaped {
    /// This one has ended.
    One(Pid, WaitStatus),
    /// Those that are left go on.
    GoOn,
    /// There is none.
    NoneLeft,
}

impl Children {
    /// Orphans among our descendants come to us from now on, and not to the first process of the machine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn adopt() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self(signal(SignalKind::child())?))
    }

    /// Returns when one or more may have ended.
    ///
    /// # Cancellation
    /// No word of an end is lost, because the next look finds it.
    pub(super) async fn changed(&mut self) {
        self.0.recv().await;
    }

    /// The next one that has ended, without waiting.
    pub(super) fn next(&mut self) -> Reaped {
        loop {
            return match wait(WaitOptions::NOHANG) {
                Ok(Some((process, status))) => Reaped::One(process, status),
                Ok(None) => Reaped::GoOn,
                Err(Errno::INTR) => continue,
                Err(_none) => Reaped::NoneLeft,
            };
        }
    }
}

/// What a shell would call the end of a process: its own code, or 128 and the number of the signal that ended it.
pub(super) fn code(status: WaitStatus) -> u8 {
    let ended = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
    ended.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
