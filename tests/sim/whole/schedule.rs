//! The events of one simulation with their times, as the seed has drawn them. The list can be read and shortened.

use std::{fmt, time::Duration};

/// The events, in the order of their times.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    /// Only accidents that are harmless at every level of fencing: clients that go away, and slow answers.
    pub(super) mild: bool,
    /// The link to the upstream.
    pub(super) way: UpstreamPath,
    pub(super) events: Vec<ScheduledEvent>,
}

/// What is between the guard and the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamPath {
    /// Nothing, and the upstream never stands still.
    Direct,
    /// A relay that keeps what it has taken, and an upstream that stands still with requests in its buffer.
    Relayed,
    /// The same, and a filter in the upstream. The filter refuses what comes later than the time to send.
    Filtered,
}

#[derive(Debug, Clone)]
pub(super) struct ScheduledEvent {
    /// The time since the beginning of the storm.
    pub(super) at: Duration,
    pub(super) what: EventKind,
}

#[derive(Debug, Clone)]
pub(super) enum EventKind {
    Asks(ClientRequest),
    /// The process stops and goes on, as by SIGSTOP and SIGCONT.
    Freezes(ProcessId, Duration),
    /// The process dies as by SIGKILL. Another one replaces it after this time.
    Dies(ProcessId, Duration),
    /// The process stops as by SIGTERM. Another one replaces it at once.
    Restarts(ProcessId),
    /// The host of guard and upstream stands still: both are frozen together.
    HostSleeps(Duration),
    /// Bytes from one host to the other are held back.
    Blocked {
        from: ProcessId,
        to: ProcessId,
        time: Duration,
    },
    /// The connections between two hosts break, and bytes on their way are lost.
    Breaks(ProcessId, ProcessId),
    /// Every message takes up to this time.
    Slow(Duration),
    /// The guard's disk accepts no write.
    DiskStalls(Duration),
    /// An accident between the gateway and ZooKeeper.
    ZooKeeper(usize, NetworkFault),
    /// The gateway takes over a policy with another key template.
    Rekeys(usize),
}

/// Between a gateway and ZooKeeper.
#[derive(Debug, Clone, Copy)]
pub(super) enum NetworkFault {
    Cut(Duration),
    Silent(Duration),
    LosesRequest,
    LosesReply,
    Blinks,
    Slow(Duration),
    /// The server ends the session at its timeout, while the gateway is cut off and learns nothing.
    Swaps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProcessId {
    Gateway(usize),
    Guard,
    Upstream,
}

/// One request of a client, and its repetitions.
#[derive(Debug, Clone)]
pub(super) struct ClientRequest {
    pub(super) gateway: usize,
    /// Route, and the resources behind it.
    pub(super) path: String,
    /// The time that the upstream works on it.
    pub(super) works: Duration,
    /// The client goes away after that time.
    pub(super) leaves: Option<Duration>,
    /// The operation, if the request must happen at most once.
    pub(super) once: Option<RepeatedOperation>,
    /// The client takes a lease of the resource first, at this gateway. Then it sends this number of requests under
    /// the lease.
    pub(super) lease: Option<LeaseSchedule>,
    /// The upstream calls back for the same resource, through this gateway.
    pub(super) calls: Option<usize>,
    /// A proxy before the upstream waits no longer than this, and answers 504 while the upstream works on.
    pub(super) relayed: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(super) struct LeaseSchedule {
    pub(super) requests: u32,
    /// The time between two requests.
    pub(super) pause: Duration,
}

#[derive(Debug, Clone)]
pub(super) struct RepeatedOperation {
    pub(super) name: String,
    pub(super) principal: Option<&'static str>,
    /// The number of repetitions, whatever the answer was. Each goes to the other gateway than the one before.
    pub(super) repeats: u32,
}

impl ClientRequest {
    pub(super) fn plain(gateway: usize, path: String, works: Duration) -> Self {
        Self { gateway, path, works, leaves: None, once: None, lease: None, calls: None, relayed: None }
    }

    /// The first resource of the request.
    pub(super) fn resource(&self) -> &str {
        self.path.split('/').nth(2).unwrap_or_default()
    }

    /// The name of its executions. All repetitions of an operation have one name.
    pub(super) fn attempt(&self, number: usize, again: u32) -> String {
        match &self.once {
            None => format!("{number}.{again}"),
            Some(RepeatedOperation { name, principal: None, .. }) => name.clone(),
            Some(RepeatedOperation { name, principal: Some(principal), .. }) => format!("{principal}:{name}"),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for ScheduledEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3} s  {}", self.at.as_secs_f64(), self.what)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks(ask) => ask.fmt(f),
            Self::Freezes(who, time) => write!(f, "{who} is frozen for {time:?}"),
            Self::Dies(who, time) => write!(f, "{who} is killed, and another one is there after {time:?}"),
            Self::Restarts(who) => write!(f, "{who} is restarted in order"),
            Self::HostSleeps(time) => write!(f, "the host of guard and upstream sleeps for {time:?}"),
            Self::Blocked { from, to, time } => {
                write!(f, "what {from} sends to {to} is held back for {time:?}")
            }
            Self::Breaks(one, other) => write!(f, "connections between {one} and {other} break"),
            Self::Slow(most) => write!(f, "from now on messages take up to {most:?}"),
            Self::DiskStalls(time) => write!(f, "the guard's disk writes nothing for {time:?}"),
            Self::ZooKeeper(gateway, trouble) => write!(f, "gateway {gateway} and ZooKeeper: {trouble:?}"),
            Self::Rekeys(gateway) => write!(f, "gateway {gateway} reloads: its keys have other names"),
        }
    }
}

impl fmt::Display for ClientRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gateway {} is asked for {}, {:?} of work", self.gateway, self.path, self.works)?;
        if let Some(RepeatedOperation { name, principal, repeats }) = &self.once {
            let of = principal.map(|of| format!(" of {of}")).unwrap_or_default();
            write!(f, ", once, as {name}{of}, and {repeats} times again")?;
        }
        if let Some(LeaseSchedule { requests, pause }) = &self.lease {
            write!(f, ", {requests} times under a lease, {pause:?} apart")?;
        }
        if let Some(gateway) = self.calls {
            write!(f, ", and the upstream calls back through gateway {gateway}")?;
        }
        if let Some(patience) = self.relayed {
            write!(f, ", and a proxy answers 504 after {patience:?}")?;
        }
        self.leaves.map_or(Ok(()), |after| write!(f, "; its client leaves after {after:?}"))
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(number) => write!(f, "gateway {number}"),
            Self::Guard => f.write_str("the guard"),
            Self::Upstream => f.write_str("the upstream"),
        }
    }
}
