//! Takes a lock, runs a command, and releases the lock. For a leader it does so again and again.

use std::{io, time::Duration};

use fencegate_process::clock::Boot;
use tokio::time::sleep;

use super::{
    asked_lock::{NoLock, WantedLock},
    exit_code::{HELD_BY_ANOTHER, LOST, NOT_RUN},
    keeping::{Charge, House, Lost, RunEnd},
    lock_source::{CommandLock, LockSource},
};

/// The command to run under a lock, and how often.
#[derive(Debug)]
pub struct Campaign {
    pub wanted: WantedLock,
    pub charge: Charge,
    pub turns: Turns,
}

/// Whether to ask for the key again when the command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    Once,
    Again,
}

/// Progress that the caller may report.
#[derive(Debug)]
pub enum Stage<'a> {
    Waits,
    Holds(&'a CommandLock),
    Lost(Lost, Boot),
    CameBack(u8),
}

/// Why the command was not run.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    #[error(transparent)]
    NoLock(#[from] NoLock),
    #[error("FG0623: {0} came while the lock was waited for; nothing was run")]
    AskedToEnd(&'static str),
    #[error("FG0623: start what watches over the command; nothing was run")]
    Unstarted(#[from] io::Error),
}

/// The pause between two turns. A command that fails at once must not keep ZooKeeper and the machine busy.
const PAUSE: Duration = Duration::from_secs(1);

impl Campaign {
    /// Returns the exit code.
    ///
    /// # Errors
    /// [`NotRun`]
    ///
    /// # Cancellation
    /// Must not be dropped while a command runs.
    pub async fn goes_on(
        &self,
        house: &mut House,
        source: &mut LockSource,
        told: impl Fn(Stage<'_>),
    ) -> Result<u8, NotRun> {
        loop {
            told(Stage::Waits);
            let lock = tokio::select! {
                lock = source.take(&self.wanted) => lock?,
                signal = house.asked_to_end() => return Err(NotRun::AskedToEnd(signal)),
            };
            told(Stage::Holds(&lock));
            let came = house.run(&self.charge, &lock).await;
            lock.give_back().await;
            let code = match came? {
                RunEnd::ByItself(code) => {
                    told(Stage::CameBack(code));
                    code
                }
                RunEnd::Ended(lost, proven) => {
                    told(Stage::Lost(lost, proven));
                    LOST
                }
            };
            if self.turns == Turns::Once || house.is_ending().is_some() {
                return Ok(code);
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                _signal = house.asked_to_end() => return Ok(code),
            }
        }
    }
}

impl NotRun {
    pub fn code(&self) -> u8 {
        match self {
            Self::NoLock(NoLock::HeldByAnother(_)) => HELD_BY_ANOTHER,
            _ => NOT_RUN,
        }
    }
}
