//! Takes a lock, runs a command, and releases the lock. For a leader it does so again and again.

use std::{io, time::Duration};

use fencegate_process::clock::BootInstant;
use tokio::time::sleep;

use super::{
    exit_code::{HELD_BY_ANOTHER, LOST, NOT_RUN},
    lock_keeper::{CommandExit, CommandRunner, LockLossReason, LockedCommand},
    lock_source::{CommandLock, CommandLockSource},
    lock_spec::{AcquireLockError, CommandLockSpec},
};

/// The command to run under a lock, and how often.
#[derive(Debug)]
pub struct LockedRunSpec {
    pub spec: CommandLockSpec,
    pub command: LockedCommand,
    pub repeat: CommandRerunPolicy,
}

/// Whether to request the key again when the command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandRerunPolicy {
    Once,
    Repeatedly,
}

/// Progress that the caller may report.
#[derive(Debug)]
pub enum CommandProgress<'a> {
    Waiting,
    Holding(&'a CommandLock),
    Lost(LockLossReason, BootInstant),
    Exited(u8),
}

/// The command was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunCommandError {
    #[error(transparent)]
    NoLock(#[from] AcquireLockError),
    #[error("FG0623: {0} arrived during the wait for the lock; nothing was run")]
    Interrupted(&'static str),
    #[error("FG0623: cannot start the processes that supervise the command, and nothing was run")]
    StartSupervisor(#[from] io::Error),
}

/// The pause between two turns. A command that fails at once must not keep ZooKeeper and the machine busy.
const PAUSE: Duration = Duration::from_secs(1);

impl LockedRunSpec {
    /// Takes the lock and runs the command, once or repeatedly. Returns the exit code.
    ///
    /// # Errors
    /// Returns a [`RunCommandError`] if the command was not run.
    ///
    /// # Cancellation
    /// The future must not be dropped while a command runs.
    pub async fn run(
        &self,
        runner: &mut CommandRunner,
        source: &mut CommandLockSource,
        report: impl Fn(CommandProgress<'_>),
    ) -> Result<u8, RunCommandError> {
        loop {
            report(CommandProgress::Waiting);
            let lock = tokio::select! {
                lock = source.acquire(&self.spec) => lock?,
                signal = runner.wait_for_termination() => return Err(RunCommandError::Interrupted(signal)),
            };
            report(CommandProgress::Holding(&lock));
            let came = runner.run(&self.command, &lock).await;
            lock.release().await;
            let code = match came? {
                CommandExit::Exited(code) => {
                    report(CommandProgress::Exited(code));
                    code
                }
                CommandExit::Terminated(lost, proven) => {
                    report(CommandProgress::Lost(lost, proven));
                    LOST
                }
            };
            if self.repeat == CommandRerunPolicy::Once || runner.forwarded_termination_signal().is_some() {
                return Ok(code);
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                _signal = runner.wait_for_termination() => return Ok(code),
            }
        }
    }
}

impl RunCommandError {
    /// The exit code for this error. `conflict`: the exit code where another holds the lock; `None` for
    /// [`HELD_BY_ANOTHER`], which a command may have as well.
    pub fn exit_code(&self, conflict: Option<u8>) -> u8 {
        match self {
            Self::NoLock(AcquireLockError::Held(_)) => conflict.unwrap_or(HELD_BY_ANOTHER),
            _ => NOT_RUN,
        }
    }
}
