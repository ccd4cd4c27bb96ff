//! What an operator may ask, and what there is to tell; and what a gateway asks about another one.

use std::time::Duration;

use fencegate_policies::{
    key::ResourceKey,
    permits::Permit,
    plan::{LockSite, Mode},
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    once::unresolved::Unresolved,
    reach::{PageAddress, Way},
    recipe::grant_record::GrantRecord,
    session::{
        link::Fault,
        publication::{Other, Publication},
    },
};

/// Answered on the thread of the sessions.
pub enum Question {
    Line { key: ResourceKey, site: LockSite, answer: Told<Vec<LineEntry>> },
    Record { key: ResourceKey, answer: Told<Option<GrantRecord>> },
    Break { key: ResourceKey, site: LockSite, holder: String, answer: Told<Broken> },
    Members { answer: Told<Vec<RegisteredGateway>> },
    Published { answer: Told<Fleet> },
    Operations { answer: Told<Vec<Unresolved>> },
    Holder { member: String, answer: Told<Holder> },
    Resolve { resolution: Resolution, answer: Told<Resolved> },
}

pub(super) type Told<T> = oneshot::Sender<Result<T, Untold>>;

/// Why nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    #[error("no ZooKeeper session")]
    Away,
    #[error("ZooKeeper did not answer within {0:?}")]
    Late(Duration),
    /// Whoever was asked has ended: the process stops.
    #[error("nobody answers any more: the gateway is stopping")]
    Ended,
    #[error("ask ZooKeeper: {0}")]
    Fault(String),
    /// Only of what changes something.
    #[error("the answer of ZooKeeper was lost: it may have been done; look again")]
    Unknown,
}

/// One that stands in line for a key, in any gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LineEntry {
    /// Name of its node, which names it and no other.
    pub node: String,
    pub mode: Mode,
    /// What made it, as far as its name and its session tell.
    pub program: Program,
    /// Whose it is; none where no member of that session is registered.
    pub gateway: Option<String>,
    /// 16 hex digits.
    pub session: String,
    /// `Fencing-Number` of what it sends.
    pub number: Option<u64>,
    pub holds: bool,
    /// Which of several permits of the key it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    pub permit: Option<Permit>,
    /// The node that it waits for; none where it may be any of several.
    pub behind: Option<String>,
    /// Since when it stands there: milliseconds since 1970, by ZooKeeper's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_ms: Option<u64>,
}

/// What stands in line for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Program {
    /// A gateway, or a program with our library.
    Fencegate,
    Curator,
    Kazoo,
    Unknown,
}

impl LineEntry {
    /// Whose node it is, as far as is known: the name of a gateway, or what made it.
    pub fn whose(&self) -> &str {
        match (&self.gateway, self.program) {
            (Some(gateway), _) => gateway,
            (None, Program::Curator) => "a program with Curator",
            (None, Program::Kazoo) => "a program with kazoo",
            (None, Program::Fencegate | Program::Unknown) => "a session that no gateway has registered",
        }
    }
}

/// What came of breaking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The node is gone by our hand.
    Gone,
    /// It was not there, or did not hold.
    NotHolding,
    /// The answer was lost: it may be gone.
    Unknown,
}

impl Broken {
    /// What came of removing the node.
    pub(super) fn of(removed: Result<(), Fault>) -> Result<Self, Untold> {
        match removed {
            Ok(()) => Ok(Self::Gone),
            Err(Fault::NoNode | Fault::BadVersion) => Ok(Self::NotHolding),
            Err(Fault::Ambiguous(_) | Fault::Over) => Ok(Self::Unknown),
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
    /// Fingerprint of the plan: gateways with another one may use other locks for the same request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where other gateways reach it, where they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Where people look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<PageAddress>,
    /// It could grant a lock by its last heartbeat, which is not too old to prove its session, and it does not drain.
    pub ready: bool,
    /// It drains.
    pub leaving: bool,
    /// How much older its last heartbeat is than the newest one of all, by ZooKeeper's clock.
    pub silent_ms: u64,
    /// Seconds since 1970, by ZooKeeper's clock, when this session was registered.
    pub since: u64,
}

/// What the gateways that are registered have published of their plans.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub ours: Publication,
    /// Gateways that have published the same.
    pub same: Vec<String>,
    pub others: Vec<Other>,
}

/// The gateway that a member node is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Its session is over, and so is all that it held.
    Gone,
    /// This process.
    Here,
    Elsewhere(Way),
    /// It does not say where other gateways reach it.
    Unreached,
}

/// What an operator says of an operation.
#[derive(Debug, Clone)]
pub struct Resolution {
    pub reference: String,
    pub done: bool,
    /// Also while it may be running.
    pub force: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    Written,
    NotFound(String),
    MayRun(String),
}

/// Operators can wait; a page that many of them look at cannot.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Nodes and operations that are told at most.
pub(super) const MOST: usize = 1000;

impl Untold {
    /// Whoever ended on the way may have done it before.
    pub(super) fn of_a_change(self) -> Self {
        if self == Self::Ended { Self::Unknown } else { self }
    }
}

impl From<Fault> for Untold {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Over => Self::Away,
            other => Self::Fault(other.to_string()),
        }
    }
}
