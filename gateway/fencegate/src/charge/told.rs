//! The messages between keeper and watchman, one line each.

use std::fmt;

use fencegate_process::clock::Boot;
use rustix::process::Signal;

/// A message of the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToWatchman {
    /// The lock is proven until then. Zero means that it is lost.
    Until(Boot),
    /// Pass this signal on.
    Pass(Signal),
    /// End the command, although the lock is still held.
    End,
}

/// A message of the watchman.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToKeeper {
    /// It has heard until when the lock is proven.
    Heard,
    /// It has asked the command to end.
    Asked,
    /// The command and all its descendants have ended.
    Over { code: u8, because: Because },
}

/// Why a command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// It has ended by itself.
    Itself,
    /// It was ended.
    Ended,
}

impl fmt::Display for ToWatchman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(until) => writeln!(f, "until {}", until.as_nanos()),
            Self::Pass(signal) => writeln!(f, "pass {}", signal.as_raw()),
            Self::End => writeln!(f, "end"),
        }
    }
}

impl ToWatchman {
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("until", nanos) => Some(Self::Until(Boot::from_nanos(nanos.parse().ok()?))),
            ("pass", number) => Signal::from_named_raw(number.parse().ok()?).map(Self::Pass),
            ("end", "") => Some(Self::End),
            _ => None,
        }
    }
}

impl fmt::Display for ToKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heard => writeln!(f, "heard"),
            Self::Asked => writeln!(f, "asked"),
            Self::Over { code, because: Because::Itself } => writeln!(f, "over {code}"),
            Self::Over { code, because: Because::Ended } => writeln!(f, "ended {code}"),
        }
    }
}

impl ToKeeper {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let over = |code: &str, because| Some(Self::Over { code: code.parse().ok()?, because });
        match line.split_once(' ').unwrap_or((line, "")) {
            ("heard", "") => Some(Self::Heard),
            ("asked", "") => Some(Self::Asked),
            ("over", code) => over(code, Because::Itself),
            ("ended", code) => over(code, Because::Ended),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for said in [ToWatchman::Until(Boot::from_nanos(17)), ToWatchman::Pass(Signal::USR1), ToWatchman::End]
        {
            assert_eq!(ToWatchman::parse(said.to_string().trim_end()), Some(said));
        }
        let over = |because| ToKeeper::Over { code: 143, because };
        for said in [ToKeeper::Heard, ToKeeper::Asked, over(Because::Itself), over(Because::Ended)] {
            assert_eq!(ToKeeper::parse(said.to_string().trim_end()), Some(said));
        }
        for noise in ["", "until", "until x", "pass 0", "over", "over 256", "end 1"] {
            assert_eq!((ToWatchman::parse(noise), ToKeeper::parse(noise)), (None, None), "{noise}");
        }
    }
}
