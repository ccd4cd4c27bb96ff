//! The messages between lock keeper and supervisor, one line each.

use std::fmt;

use fencegate_process::clock::BootInstant;
use rustix::process::Signal;

/// A message of the lock keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeeperToSupervisor {
    /// The lock is valid until this instant. Zero means that the lock is lost.
    Until(BootInstant),
    /// Pass this signal on to the command.
    Signal(Signal),
    /// End the command, although the lock is still held.
    Terminate,
}

/// A message of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SupervisorToKeeper {
    /// The supervisor has received the last lock validity.
    Acknowledged,
    /// The supervisor has requested that the command end.
    Terminating,
    /// The command and all its descendants have ended.
    Exited { code: u8, because: ExitCause },
}

/// The cause of the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitCause {
    /// The command has ended by itself.
    Exited,
    /// The supervisor has ended the command.
    Terminated,
}

impl fmt::Display for KeeperToSupervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(until) => writeln!(f, "until {}", until.as_nanos()),
            Self::Signal(signal) => writeln!(f, "pass {}", signal.as_raw()),
            Self::Terminate => writeln!(f, "end"),
        }
    }
}

impl KeeperToSupervisor {
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("until", nanos) => Some(Self::Until(BootInstant::from_nanos(nanos.parse().ok()?))),
            ("pass", number) => Signal::from_named_raw(number.parse().ok()?).map(Self::Signal),
            ("end", "") => Some(Self::Terminate),
            _ => None,
        }
    }
}

impl fmt::Display for SupervisorToKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acknowledged => writeln!(f, "heard"),
            Self::Terminating => writeln!(f, "asked"),
            Self::Exited { code, because: ExitCause::Exited } => writeln!(f, "over {code}"),
            Self::Exited { code, because: ExitCause::Terminated } => writeln!(f, "ended {code}"),
        }
    }
}

impl SupervisorToKeeper {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let over = |code: &str, because| Some(Self::Exited { code: code.parse().ok()?, because });
        match line.split_once(' ').unwrap_or((line, "")) {
            ("heard", "") => Some(Self::Acknowledged),
            ("asked", "") => Some(Self::Terminating),
            ("over", code) => over(code, ExitCause::Exited),
            ("ended", code) => over(code, ExitCause::Terminated),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each message between supervisor and lock keeper is parsed as it was written, and noise is rejected.
    #[test]
    fn messages_round_trip() {
        for message in [
            KeeperToSupervisor::Until(BootInstant::from_nanos(17)),
            KeeperToSupervisor::Signal(Signal::USR1),
            KeeperToSupervisor::Terminate,
        ] {
            assert_eq!(KeeperToSupervisor::parse(message.to_string().trim_end()), Some(message));
        }
        let over = |because| SupervisorToKeeper::Exited { code: 143, because };
        for message in [
            SupervisorToKeeper::Acknowledged,
            SupervisorToKeeper::Terminating,
            over(ExitCause::Exited),
            over(ExitCause::Terminated),
        ] {
            assert_eq!(SupervisorToKeeper::parse(message.to_string().trim_end()), Some(message));
        }
        for noise in ["", "until", "until x", "pass 0", "over", "over 256", "end 1"] {
            assert_eq!(
                (KeeperToSupervisor::parse(noise), SupervisorToKeeper::parse(noise)),
                (None, None),
                "{noise}"
            );
        }
    }
}
