//! The queries of operators, and of a gateway about a peer, with the forms of the answers.

use std::time::Duration;

use fencegate_idempotency::unresolved::UnresolvedOperation;
use fencegate_policies::{
    key::ResourceKey,
    permits::PermitIndex,
    plan::{LockLocation, LockMode},
};
use fencegate_recipe::grant_record::GrantRecord;
use fencegate_zookeeper::{
    peer_endpoint::{AdminPageAddress, HolderRoute},
    session::{
        client::ZkError,
        member::is_no_plan,
        plan_publication::{PeerPlanPublication, PublishedPlanBytes},
    },
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// The queries and commands of operators, which the thread of the sessions answers.
pub(crate) enum SessionAdminCommand {
    QueueEntries { key: ResourceKey, site: LockLocation, answer: AdminReplySender<Vec<LockQueueEntry>> },
    Record { key: ResourceKey, answer: AdminReplySender<Option<GrantRecord>> },
    Break { key: ResourceKey, site: LockLocation, holder: String, answer: AdminReplySender<BreakLockOutcome> },
    Members { answer: AdminReplySender<Vec<RegisteredGateway>> },
    Published { answer: AdminReplySender<PublishedPlans> },
    Operations { answer: AdminReplySender<Vec<UnresolvedOperation>> },
    MemberNames { answer: AdminReplySender<Vec<String>> },
    LocateMember { member: String, answer: AdminReplySender<GatewayLocation> },
    Resolve { resolution: ResolveOperationRequest, answer: AdminReplySender<ResolveOperationOutcome> },
}

pub(super) type AdminReplySender<T> = oneshot::Sender<Result<T, AdminQueryError>>;

/// Errors of a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminQueryError {
    #[error("the gateway has no ZooKeeper session")]
    NoSession,
    #[error("ZooKeeper did not answer within {0:?}")]
    Timeout(Duration),
    /// The session's thread has ended, because the process stops.
    #[error("the gateway is stopping and answers no more queries")]
    ShuttingDown,
    #[error("the query of ZooKeeper failed: {0}")]
    Fault(String),
    /// The answer to a change was lost. Queries that only read do not return this.
    #[error("ZooKeeper's reply was lost, so the change may have been made; look again")]
    Unknown,
}

/// One contender in the queue for a key, of any gateway or program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LineEntry))]
pub struct LockQueueEntry {
    /// The name of its node, which is unique.
    pub node: String,
    pub mode: LockMode,
    /// The kind of program that made the node, as far as its name and its session show.
    pub program: ContenderProgram,
    /// The gateway that owns it; none if no gateway has registered that session.
    pub gateway: Option<String>,
    /// 16 hex digits.
    pub session: String,
    /// The `Fencing-Number` of its requests.
    pub number: Option<u64>,
    pub holds: bool,
    /// The permit that it holds, if the key has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    pub permit: Option<PermitIndex>,
    /// The node that it waits for; none if it waits for any one of several.
    pub behind: Option<String>,
    /// When its node was made: milliseconds since 1970, by ZooKeeper's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_ms: Option<u64>,
}

/// The kind of program that a contender belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Program))]
pub enum ContenderProgram {
    /// A gateway, or a program with this library.
    Fencegate,
    Curator,
    Kazoo,
    Unknown,
}

impl LockQueueEntry {
    /// The owner of the node, as far as is known: the name of a gateway, or the kind of program.
    pub fn owner_name(&self) -> &str {
        // The owners that a server reports for a persistent node, and for a container.
        if matches!(self.session.as_str(), "0000000000000000" | "8000000000000000") {
            return "no session: this node is nobody's lock, and stays until it is removed";
        }
        match (&self.gateway, self.program) {
            (Some(gateway), _) => gateway,
            (None, ContenderProgram::Curator) => "a program with Curator",
            (None, ContenderProgram::Kazoo) => "a program with kazoo",
            (None, ContenderProgram::Fencegate | ContenderProgram::Unknown) => {
                "a session that no gateway has registered"
            }
        }
    }
}

/// The result of breaking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakLockOutcome {
    /// The node was removed.
    Gone,
    /// The node did not exist, or did not hold the lock.
    NotHolding,
    /// The answer was lost, so the node may be gone.
    Unknown,
}

impl BreakLockOutcome {
    /// The outcome for the result of the transaction that removes the node.
    pub(super) fn from_removal(removed: Result<(), ZkError>) -> Result<Self, AdminQueryError> {
        match removed {
            Ok(()) => Ok(Self::Gone),
            Err(ZkError::NoNode | ZkError::BadVersion) => Ok(Self::NotHolding),
            Err(ZkError::Ambiguous(_) | ZkError::SessionEnded) => Ok(Self::Unknown),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// A gateway as it is registered in ZooKeeper, by one of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegisteredGateway {
    pub gateway: String,
    /// 16 hex digits.
    pub session: String,
    /// Absent where its node cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Fingerprint of the plan: gateways with another fingerprint may use other locks for the same request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The address at which other gateways reach it, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The address of its admin page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<AdminPageAddress>,
    /// Whether it could grant locks: its session deadline has not passed, and it does not drain.
    pub ready: bool,
    /// Whether it drains.
    pub leaving: bool,
    /// How much older its last heartbeat is than the newest one of all, by ZooKeeper's clock.
    pub silent_ms: u64,
    /// Seconds since 1970, by ZooKeeper's clock, when this session was registered.
    pub since: u64,
}

impl RegisteredGateway {
    /// Whether it is a command or a program that names its keys itself, and no gateway.
    pub fn is_lock_client(&self) -> bool {
        self.plan.as_deref().is_some_and(is_no_plan)
    }
}

/// The plans that the registered gateways have published.
#[derive(Debug, Clone)]
pub struct PublishedPlans {
    pub ours: PublishedPlanBytes,
    /// Gateways that have published the same plan.
    pub same: Vec<String>,
    pub others: Vec<PeerPlanPublication>,
}

/// The location of the gateway that a member node belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayLocation {
    /// The session of the member node is over, so all its locks are gone.
    Gone,
    /// The member node belongs to this process.
    Here,
    Elsewhere(HolderRoute),
    /// The gateway has no address for other gateways.
    Unreachable,
}

/// An operator's resolution of an operation.
#[derive(Debug, Clone)]
pub struct ResolveOperationRequest {
    pub reference: String,
    pub done: bool,
    /// Whether to resolve the operation even if it may still be running, or may still start.
    pub force: bool,
    /// The time after its admission until which a dispatch may be started.
    pub within: Duration,
}

/// The result of a resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveOperationOutcome {
    Written,
    NotFound(String),
    MayRun(String),
}

/// The time limit of a query: an operator could wait longer, but an admin page with many viewers cannot.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// The most nodes or operations in one answer.
pub(super) const MAX_ENTRIES: usize = 1000;

impl AdminQueryError {
    /// Turns the end of the process into a lost answer, for a change that may have been made before.
    pub(super) fn into_unknown_on_shutdown(self) -> Self {
        if self == Self::ShuttingDown { Self::Unknown } else { self }
    }
}

impl From<ZkError> for AdminQueryError {
    fn from(fault: ZkError) -> Self {
        match fault {
            ZkError::SessionEnded => Self::NoSession,
            other => Self::Fault(other.to_string()),
        }
    }
}
