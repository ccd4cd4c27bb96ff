//! The paths of one installation's nodes in ZooKeeper.

use std::fmt;

use fencegate_policies::{key::ResourceKey, plan::LockLocation};
use fencegate_process::{key_redaction, randomness::Guid};

use fencegate_policies::operation::OperationId;

/// The paths below one root.
#[derive(Debug, Clone)]
pub struct ZkPaths {
    root: String,
}

/// The name of a node that holds a part of a published plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlanPartName {
    pub(super) fingerprint: String,
    pub(super) number: usize,
    pub(super) count: usize,
}

impl PlanPartName {
    /// Parses the name of a node; `None` for a node of a later build or of another program.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut pieces = name.split('.');
        let fingerprint = pieces.next()?;
        let number = pieces.next()?;
        let count = pieces.next()?;
        let named = Self {
            fingerprint: fingerprint.to_owned(),
            number: number.parse().ok()?,
            count: count.parse().ok()?,
        };
        (pieces.next().is_none() && named.number < named.count).then_some(named)
    }
}

impl fmt::Display for PlanPartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.fingerprint, self.number, self.count)
    }
}

impl ZkPaths {
    /// `root`: absolute, without a trailing slash.
    pub fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn root(&self) -> &str {
        &self.root
    }

    /// The path of a lock node or its parent, shortened for the log.
    pub fn redacted_path(&self, path: &str) -> String {
        let ours = path.strip_prefix(&*self.root).is_some_and(|below| below.starts_with('/'));
        if ours {
            key_redaction::redact_lock_node_path(&self.locks_path(), path)
        } else {
            key_redaction::redact_foreign_znode_path(path)
        }
    }

    /// The node with the identity and the era of the installation.
    pub fn meta_path(&self) -> String {
        format!("{}/meta", self.root)
    }

    /// A node that `fencegate check --online` creates and removes again, to read the time of ZooKeeper. Nothing watches
    /// its parent, so nobody is woken.
    pub fn clock_probe_path(&self, session: i64) -> String {
        format!("{}/clock-{session:016x}", self.root)
    }

    /// Parent of the member nodes, by which gateways are registered.
    pub fn members_path(&self) -> String {
        format!("{}/members", self.root)
    }

    pub fn member_path(&self, gateway: &str, session: i64) -> String {
        format!("{}/{}", self.members_path(), Self::member_name(gateway, session))
    }

    pub fn member_name(gateway: &str, session: i64) -> String {
        format!("{gateway}-{session:016x}")
    }

    /// Parent of the plans that gateways publish.
    pub(crate) fn plans_path(&self) -> String {
        format!("{}/plans", self.root)
    }

    /// The path of part `number`, from 0, of the `count` parts of a plan.
    pub(super) fn plan_part_path(&self, fingerprint: &str, number: usize, count: usize) -> String {
        format!(
            "{}/{}",
            self.plans_path(),
            PlanPartName { fingerprint: fingerprint.to_owned(), number, count }
        )
    }

    /// A node that is created only to read its czxid, and removed at once.
    pub(crate) fn floor_probe_path(&self, guid: Guid) -> String {
        format!("{}/floor-{guid}", self.root)
    }

    pub fn locks_path(&self) -> String {
        format!("{}/locks", self.root)
    }

    /// Parent of the lock nodes of a key, native or not.
    pub fn lock_parent_path(&self, key: &ResourceKey, site: &LockLocation) -> String {
        match site {
            LockLocation::Native | LockLocation::Semaphore { .. } => self.native_lock_parent_path(key),
            LockLocation::Foreign { path, .. } => path.to_string(),
        }
    }

    /// The node above the parents of the locks in one shard. Keys are spread over 256 such nodes, so that none grows
    /// without bound.
    pub fn lock_shard_path(&self, key: &ResourceKey) -> String {
        format!("{}/locks/{:02x}", self.root, key.lock_shard())
    }

    /// Parent of all idempotency records.
    pub fn operations_path(&self) -> String {
        format!("{}/ops", self.root)
    }

    /// The node above the records of operations in one shard. There are 256 shards, so that none grows without bound.
    pub fn operation_shard_path(&self, id: &OperationId) -> String {
        format!("{}/ops/{:02x}", self.root, id.as_bytes()[0])
    }

    pub fn operation_path(&self, id: &OperationId) -> String {
        format!("{}/ops/{:02x}/{id}", self.root, id.as_bytes()[0])
    }

    /// Parent of the lock nodes of one key: a single segment, so that no key nests in another.
    pub fn native_lock_parent_path(&self, key: &ResourceKey) -> String {
        format!("{}/locks/{:02x}/{}", self.root, key.lock_shard(), key.lock_segment())
    }
}
