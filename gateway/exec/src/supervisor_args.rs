//! The arguments with which a supervisor is started.

use std::{ffi::OsString, time::Duration};

use fencegate_process::clock::BootInstant;
use rustix::process::Pid;

use super::terminal::ProcessGroup;

/// The arguments with which a supervisor is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SupervisorArgs {
    pub(super) group: ProcessGroup,
    pub(super) grace: Duration,
    pub(super) until: BootInstant,
}

impl SupervisorArgs {
    pub(super) fn to_args(self) -> [String; 3] {
        let group = match self.group {
            ProcessGroup::Own => 0,
            ProcessGroup::Shared(group) => group.as_raw_nonzero().get(),
        };
        [group.to_string(), self.grace.as_nanos().to_string(), self.until.as_nanos().to_string()]
    }

    pub(super) fn parse(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
        let group = number()?;
        let grace = number()?;
        let until = number()?;
        let group = match i32::try_from(group).ok()? {
            0 => ProcessGroup::Own,
            group => ProcessGroup::Shared(Pid::from_raw(group)?),
        };
        Some(Self { group, grace: Duration::from_nanos(grace), until: BootInstant::from_nanos(until) })
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    /// The arguments of the supervisor are parsed as they were written.
    #[test]
    fn arguments_round_trip() {
        for group in [ProcessGroup::Own, ProcessGroup::Shared(getpid())] {
            let orders = SupervisorArgs {
                group,
                grace: Duration::from_millis(300),
                until: BootInstant::from_nanos(1 << 60),
            };
            let mut written = orders.to_args().into_iter().map(OsString::from);
            assert_eq!(SupervisorArgs::parse(&mut written), Some(orders));
        }
        assert_eq!(SupervisorArgs::parse(&mut ["1".into(), "x".into()].into_iter()), None);
    }
}
