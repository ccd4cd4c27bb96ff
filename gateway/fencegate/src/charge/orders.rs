//! The arguments with which a watchman is started.

use std::{ffi::OsString, time::Duration};

use fencegate_process::clock::Boot;
use rustix::process::Pid;

use super::terminal::CommandGroup;

/// The arguments with which a watchman is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) group: CommandGroup,
    pub(super) grace: Duration,
    pub(super) until: Boot,
}

impl Orders {
    pub(super) fn written(self) -> [String; 3] {
        let group = match self.group {
            CommandGroup::Own => 0,
            CommandGroup::Ours(group) => group.as_raw_nonzero().get(),
        };
        [group.to_string(), self.grace.as_nanos().to_string(), self.until.as_nanos().to_string()]
    }

    pub(super) fn read(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
        let (group, grace, until) = (number()?, number()?, number()?);
        let group = match i32::try_from(group).ok()? {
            0 => CommandGroup::Own,
            group => CommandGroup::Ours(Pid::from_raw(group)?),
        };
        Some(Self { group, grace: Duration::from_nanos(grace), until: Boot::from_nanos(until) })
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for group in [CommandGroup::Own, CommandGroup::Ours(getpid())] {
            let orders =
                Orders { group, grace: Duration::from_millis(300), until: Boot::from_nanos(1 << 60) };
            let mut written = orders.written().into_iter().map(OsString::from);
            assert_eq!(Orders::read(&mut written), Some(orders));
        }
        assert_eq!(Orders::read(&mut ["1".into(), "x".into()].into_iter()), None);
    }
}
