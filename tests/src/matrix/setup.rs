//! The set-up of a case, as data.

use std::time::Duration;

use super::workload::WorkloadKind;

#[derive(Debug, Clone, Copy)]
pub struct CaseSetup {
    pub errand: WorkloadKind,
    pub speech: ClientProtocol,
    pub gateways: usize,
    pub guards: GuardSetup,
    /// The store of operations, for clients that name operations.
    pub once: OperationStore,
    /// The connections of the first gateway that can be cut.
    pub ways: NetworkSetup,
    pub hops: HopSetup,
    /// True if the clocks of the first gateway can be set. The guard then requires tickets, because a ticket has a
    /// time.
    pub clocks: bool,
    pub requests: ForwardMode,
    /// The session timeout.
    pub session: Duration,
}

/// The protocol of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProtocol {
    Http1,
    Http2,
    Tls,
}

/// The guards at level `guard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardSetup {
    /// One guard, with its store in a file.
    One,
    /// Two guards that share a PostgreSQL.
    TwoSharing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationStore {
    InGuard,
    InZooKeeper,
}

/// The connections from the first gateway to other processes that can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkSetup {
    Direct,
    /// The connection to ZooKeeper can be cut.
    CutToZooKeeper,
    /// The connection to the service, or to its guard, can be cut.
    CutToService,
    /// Each gateway has a network namespace of its own, and packets of the first one can be dropped in any direction.
    Namespaces,
}

/// The proxies between the service and its client, which is a guard or a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopSetup {
    Nothing,
    /// A relay that can deliver late what it has acknowledged.
    Relay,
    /// The relay, and behind it a filter that refuses requests after their `Fencing-Not-After`.
    Filter,
    /// The relay and the filter, which only observes: it lets pass what it would refuse.
    ObservingFilter,
}

/// The handling of requests for a key that another gateway holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardMode {
    /// The gateway waits for the key.
    Wait,
    /// The gateway forwards the request to the holder.
    Forward,
}

/// Two gateways, a session of 2 s, and clients that pay.
pub const PLAIN: CaseSetup = CaseSetup {
    errand: WorkloadKind::Pay,
    speech: ClientProtocol::Http1,
    gateways: 2,
    guards: GuardSetup::One,
    once: OperationStore::InGuard,
    ways: NetworkSetup::Direct,
    hops: HopSetup::Nothing,
    clocks: false,
    requests: ForwardMode::Wait,
    session: Duration::from_secs(2),
};
