//! The set-up of a case, as data.

use std::time::Duration;

use super::workload::WorkloadKind;

#[derive(Debug, Clone, Copy)]
pub struct CaseSetup {
    pub errand: WorkloadKind,
    pub speech: ClientProtocol,
    pub gateways: usize,
    pub guards: GuardSetup,
    /// Where operations are recorded, for clients that name them.
    pub once: OperationStore,
    /// Whether the ways of the first gateway can be cut.
    pub ways: NetworkSetup,
    pub hops: HopSetup,
    /// The clocks of the first gateway can be set, and the guard demands tickets, because a ticket carries a time.
    pub clocks: bool,
    pub requests: ForwardMode,
    /// The session timeout, T in the bounds of recovery.
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

/// The proxies from the first gateway to other processes.
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

/// The proxy between the service and its caller, a guard or a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopSetup {
    Nothing,
    /// A relay that can deliver late what it has acknowledged.
    Relay,
    /// The same, and behind it a filter that refuses what comes after its moment.
    Filter,
    /// The same filter, and it lets pass what it would refuse.
    ObservingFilter,
}

/// How a gateway treats requests for a key that another gateway holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardMode {
    /// The gateway waits for the key.
    Wait,
    /// The gateway sends the request on to the holder.
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
