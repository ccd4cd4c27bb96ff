//! Whether this process has a controlling terminal, and whether input typed there is meant for it.

use std::fs;

use rustix::process::{Pid, getpgrp};

/// The process group of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessGroup {
    /// A group of its own: there is no controlling terminal, and signals come one by one.
    Own,
    /// Our group, with other commands of the same shell line. A terminal signals the whole group at once, and lets
    /// only this group read.
    Shared(Pid),
}

impl ProcessGroup {
    pub(super) fn from_controlling_terminal() -> Self {
        match foreground_group(&read_stat()) {
            Some(_) => Self::Shared(getpgrp()),
            None => Self::Own,
        }
    }

    /// True if a key typed at the terminal has reached the command already.
    pub(super) fn is_in_foreground(self) -> bool {
        match self {
            Self::Own => false,
            Self::Shared(group) => foreground_group(&read_stat()) == Some(group.as_raw_nonzero().get()),
        }
    }
}

fn read_stat() -> String {
    fs::read_to_string("/proc/self/stat").unwrap_or_default()
}

/// The process group in the foreground of the terminal that controls us (fields 7 and 8 of proc_pid_stat(5)); `None` without
/// a terminal.
fn foreground_group(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(4);
    let terminal = fields.next()?;
    let group = fields.next()?;
    (terminal != "0").then(|| group.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The foreground group is read where the process has a terminal, and nowhere else.
    #[test]
    fn foreground_group_requires_terminal() {
        assert_eq!(foreground_group("12 (a b) S 1 12 12 34816 77 4194304 0"), Some(77));
        assert_eq!(foreground_group("12 (sh) S 1 12 12 0 -1 4194304 0"), None);
        assert_eq!(foreground_group(""), None);
    }
}
