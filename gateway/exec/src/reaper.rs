//! Waits for children that have ended, also for orphans that became our children later.

use std::io;

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus, wait},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// All children of this process, also orphans of the processes that it has started.
pub(super) struct ChildReaper(Signal);

/// The result of one check.
#[derive(Debug)]
pub(super) enum ReapOutcome {
    /// This child has ended.
    Exited(Pid, WaitStatus),
    /// All children that are left still run.
    StillRunning,
    /// There are no children.
    NoChildren,
}

impl ChildReaper {
    /// Makes this process the parent of orphans among its descendants, in place of the first process of the machine.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub(super) fn become_subreaper() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self(signal(SignalKind::child())?))
    }

    /// Returns when children may have ended.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next check finds them.
    pub(super) async fn wait_child_exit(&mut self) {
        self.0.recv().await;
    }

    /// Reaps the next child that has ended, without waiting.
    pub(super) fn reap_next(&mut self) -> ReapOutcome {
        loop {
            return match wait(WaitOptions::NOHANG) {
                Ok(Some((process, status))) => ReapOutcome::Exited(process, status),
                Ok(None) => ReapOutcome::StillRunning,
                Err(Errno::INTR) => continue,
                Err(_none) => ReapOutcome::NoChildren,
            };
        }
    }
}

/// The exit code that a shell would report: the code of the process, or 128 plus the number of the signal that ended
/// it.
pub(super) fn shell_exit_code(status: WaitStatus) -> u8 {
    let ended = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
    ended.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
