//! Where everything of one installation lies in ZooKeeper.

use fencegate_policies::key::ResourceKey;
use fencegate_process::randomness::Guid;

use fencegate_policies::operation::OperationId;

/// The paths below one root.
#[derive(Debug, Clone)]
pub struct Paths {
    root: String,
}

impl Paths {
    /// `root`: absolute, without a trailing slash.
    pub fn below(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn root(&self) -> &str {
        &self.root
    }

    /// Identity and era of the installation.
    pub fn meta(&self) -> String {
        format!("{}/meta", self.root)
    }

    /// Parent of the gateways' registrations.
    pub fn members(&self) -> String {
        format!("{}/members", self.root)
    }

    pub fn member(&self, gateway: &str, session: i64) -> String {
        format!("{}/{}", self.members(), Self::member_name(gateway, session))
    }

    pub fn member_name(gateway: &str, session: i64) -> String {
        format!("{gateway}-{session:016x}")
    }

    /// A node that is there for a moment only, to learn the number of its transaction.
    pub fn floor(&self, guid: Guid) -> String {
        format!("{}/floor-{guid}", self.root)
    }

    pub fn locks(&self) -> String {
        format!("{}/locks", self.root)
    }

    /// Keys are spread over 256 nodes, so that no parent grows without bound.
    pub fn shard(&self, key: &ResourceKey) -> String {
        format!("{}/locks/{:02x}", self.root, key.shard())
    }

    /// Parent of everything that is remembered of operations.
    pub fn operations(&self) -> String {
        format!("{}/ops", self.root)
    }

    /// One of 256, so that no parent grows without bound.
    pub fn operation_shard(&self, id: &OperationId) -> String {
        format!("{}/ops/{:02x}", self.root, id.bytes()[0])
    }

    pub fn operation(&self, id: &OperationId) -> String {
        format!("{}/ops/{:02x}/{id}", self.root, id.bytes()[0])
    }

    /// Parent of the lock nodes of one key: a single segment, so that no key nests in another.
    pub fn lock(&self, key: &ResourceKey) -> String {
        format!("{}/locks/{:02x}/{}", self.root, key.shard(), key.lock_segment())
    }
}
