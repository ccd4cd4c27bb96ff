//! The events of one simulation with their times, as generated from the seed. The list can be printed and shortened.

use std::{fmt, time::Duration};

/// The events, in the order of their times.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    /// True if all accidents are harmless at every level of fencing: clients that go away, and slow responses.
    pub(super) mild: bool,
    /// The kind of path between guard and upstream.
    pub(super) way: UpstreamPath,
    pub(super) events: Vec<ScheduledEvent>,
}

/// What a request passes between the guard and the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamPath {
    /// Nothing, and the upstream is never paused.
    Direct,
    /// A relay that delivers everything it has accepted, and an upstream that may be paused with requests in its
    /// buffer.
    Relayed,
    /// As `Relayed`, with a filter in the upstream that refuses requests after their `Fencing-Not-After`.
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
    /// The process is frozen for this time, as by SIGSTOP and SIGCONT.
    Freezes(ProcessId, Duration),
    /// The process is killed, as by SIGKILL, and replaced by another one after this time.
    Dies(ProcessId, Duration),
    /// The process is stopped, as by SIGTERM, and replaced by another one at once.
    Restarts(ProcessId),
    /// The host of guard and upstream is paused: both are frozen together.
    HostSleeps(Duration),
    /// Bytes from one host to the other are held back.
    Blocked {
        from: ProcessId,
        to: ProcessId,
        time: Duration,
    },
    /// The connections between two hosts break, and bytes in flight are lost.
    Breaks(ProcessId, ProcessId),
    /// Every message has a latency of up to this time.
    Slow(Duration),
    /// The guard's disk accepts no write.
    DiskStalls(Duration),
    /// An accident between the gateway and ZooKeeper.
    ZooKeeper(usize, NetworkFault),
    /// The gateway reloads a policy with the other key template.
    Rekeys(usize),
}

/// Accidents of the connection between a gateway and ZooKeeper.
#[derive(Debug, Clone, Copy)]
pub(super) enum NetworkFault {
    Cut(Duration),
    Silent(Duration),
    LosesRequest,
    LosesReply,
    Blinks,
    Slow(Duration),
    /// The server ends the session at its timeout, while the gateway is disconnected and learns nothing of it.
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
    /// The path of the request: its route, and its resources.
    pub(super) path: String,
    /// The time that the upstream works on the request.
    pub(super) works: Duration,
    /// The time after which the client goes away.
    pub(super) leaves: Option<Duration>,
    /// The operation that the request is, if it must be executed at most once.
    pub(super) once: Option<RepeatedOperation>,
    /// The client first takes a lease of the resource at this gateway, and then sends several requests under it.
    pub(super) lease: Option<LeaseSchedule>,
    /// The upstream calls back for the same resource, through this gateway.
    pub(super) calls: Option<usize>,
    /// A proxy before the upstream waits only for this time, and answers 504 while the upstream still works.
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
    /// The number of repetitions, whatever the response is. They go to both gateways in turn.
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

    /// The id of an attempt. All repetitions of an operation have the same id.
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
