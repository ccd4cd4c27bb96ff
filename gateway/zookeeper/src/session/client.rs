//! The interface of one ZooKeeper session: few operations, and errors that distinguish known from unknown results.
//!
//! [`super::zookeeper`] implements it for a real ensemble; a simulation brings its own implementation. Every operation
//! is *sent when the method is called*, in call order, so two calls awaited together are pipelined. Dropping the future
//! cancels nothing. No operation has a time limit: each ends with its answer, with [`ZkError::Ambiguous`] when the
//! connection breaks, or with [`ZkError::SessionEnded`] when the session ends.

use std::{future::Future, time::Duration};

/// How an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZkError {
    #[error("the node does not exist")]
    NoNode,
    #[error("the node exists already")]
    NodeExists,
    #[error("the node has children")]
    NotEmpty,
    #[error("the node's version has changed")]
    BadVersion,
    /// The servers answer, but every TLS handshake fails.
    #[error("the TLS handshake with ZooKeeper failed: {0}")]
    Tls(String),
    /// There is no session with any server. The text says for each server, by its address, how the attempt failed.
    #[error("{0}")]
    Unreachable(String),
    /// An ACL forbids the operation. Nothing was done.
    #[error("ZooKeeper denied access: {0}")]
    Denied(&'static str),
    /// The server refused the operation for another reason. Nothing was done.
    #[error("ZooKeeper refused the operation: {0}")]
    Refused(String),
    /// The answer was lost, so the operation may or may not have been done.
    #[error("ZooKeeper's reply was lost: {0}")]
    Ambiguous(String),
    /// The session has ended. Its ephemeral nodes are gone, or are removed with its timeout.
    #[error("the ZooKeeper session has ended")]
    SessionEnded,
}

/// Facts about a node, beside its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStat {
    /// The number of the transaction that created the node.
    pub czxid: i64,
    /// The id of the session that owns the node; 0 for a persistent one.
    pub owner: i64,
    pub version: i32,
    /// The time of the node's creation, in the unit of `modified` and by the same clock.
    pub created: u64,
    /// The time of the last write of its data, in milliseconds since 1970, by the clock of the server that was leader
    /// then.
    pub modified: u64,
    /// The number of its children.
    pub children: i32,
}

/// A created node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedNode {
    pub stat: NodeStat,
    /// The number of a sequential node; -1 for other nodes.
    pub sequence: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCreateMode {
    Persistent,
    /// The server removes the node some time after the last child of the node was removed.
    Container,
    Ephemeral,
    EphemeralSequential,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiOp<'a> {
    /// Checks the version of a node; -1: checks only that the node exists.
    Check {
        path: &'a str,
        version: i32,
    },
    Create {
        path: &'a str,
        data: &'a [u8],
        kind: NodeCreateMode,
    },
    Set {
        path: &'a str,
        data: &'a [u8],
    },
    /// `version`: `None` for any version.
    Delete {
        path: &'a str,
        version: Option<i32>,
    },
}

/// The failure of a transaction. Unless the fault is ambiguous, nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", step.map(|step| format!("step {step} of the transaction: ")).unwrap_or_default())]
pub struct MultiError {
    /// The step that the server refused, counted from 0; `None` if the whole request failed.
    pub step: Option<usize>,
    pub fault: ZkError,
}

/// An identity that may change a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclGrantee {
    /// The scheme and the name of the identity, such as `world:anyone` or `ip:10.0.0.0/8`.
    pub who: String,
    /// Permissions as some of the letters `c` (create), `d` (delete), `w` (write) and `a` (change the ACL).
    pub may: String,
}

impl AclGrantee {
    pub fn is_anyone(&self) -> bool {
        self.who == "world:anyone"
    }
}

/// The state of the session as the client library reports it. It does not prove that the session is alive; see
/// [`super::session_deadline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZkConnectionState {
    Connected,
    Disconnected,
    Ended,
}

/// A session. Dropping the last handle of it ends it at the server.
pub trait ZkClient: 'static {
    /// Resolves once, when the watched node changes or is removed, or when the session ends.
    type Watch: Future<Output = ()>;

    /// The session's id from the first connection; see [`ZkClient::reconnect_count`].
    fn id(&self) -> i64;
    /// The session timeout that was negotiated at the first connection.
    fn negotiated_timeout(&self) -> Duration;
    /// The shortest session timeout that a server has granted at any connection so far. `None`: for some connection
    /// after the first the timeout is not known.
    fn shortest_granted_timeout(&self) -> Option<Duration>;
    fn state(&self) -> ZkConnectionState;
    /// How often the connection was made anew. A server that does not know the session may silently assign a new id.
    /// Only the owner of a node that is created over the new connection shows that.
    fn reconnect_count(&self) -> u64;
    /// Resolves at the next change of state.
    fn state_changed(&self) -> impl Future<Output = ()>;

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: NodeCreateMode,
    ) -> impl Future<Output = Result<CreatedNode, ZkError>>;
    /// Creates an empty node with the ACL of the node `above`.
    fn create_with_acl_of<'a>(
        &'a self,
        path: &'a str,
        _above: &'a str,
        kind: NodeCreateMode,
    ) -> impl Future<Output = Result<(), ZkError>> + 'a {
        let sent = self.create(path, b"", kind);
        async { sent.await.map(drop) }
    }
    fn delete(&self, path: &str) -> impl Future<Output = Result<(), ZkError>>;
    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>>;
    /// The children of several nodes, in one request (since ZooKeeper 3.6, the oldest that is supported); `None` for
    /// each node that cannot be read.
    fn children_of(&self, paths: &[&str]) -> impl Future<Output = Result<Vec<Option<Vec<String>>>, ZkError>>;
    fn stat(&self, path: &str) -> impl Future<Output = Result<Option<NodeStat>, ZkError>>;
    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, NodeStat), ZkError>>;
    /// Watches an existing node. If the result is [`ZkError::NoNode`], no watch is left at the server.
    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, ZkError>>;
    /// The children, and a watch that fires when one is created or removed, or the node itself is removed.
    fn watch_children(&self, path: &str)
    -> impl Future<Output = Result<(Vec<String>, Self::Watch), ZkError>>;
    /// Brings this session's server up to the leader's committed state. It needs no quorum, so it does not prove that
    /// the leader still leads.
    fn sync(&self, path: &str) -> impl Future<Output = Result<(), ZkError>>;
    /// Does all steps or none. Returns the path that each step created, with the number that the server appended.
    fn commit(&self, steps: &[MultiOp<'_>]) -> impl Future<Output = Result<Vec<Option<String>>, MultiError>>;
    /// Saves the ACL of the node at `path`, which is about to be replaced. This session gives the next persistent node
    /// at that path the same ACL.
    fn save_acl_for_replacement(&self, _path: &str) -> impl Future<Output = Result<(), ZkError>> {
        std::future::ready(Ok(()))
    }
    /// The identities that may change a node, or the nodes below it.
    fn acl_grantees(&self, _path: &str) -> impl Future<Output = Result<Vec<AclGrantee>, ZkError>> {
        std::future::ready(Ok(Vec::new()))
    }
    /// The identities that are meant to write the nodes: the own identity as the server reports it, and the configured
    /// ones. Empty: the server knows no identity of this session. `None`: every client may write, or the server cannot
    /// be queried.
    fn intended_writers(&self) -> impl Future<Output = Result<Option<Vec<String>>, ZkError>> {
        std::future::ready(Ok(None))
    }
    /// Paths of all ephemeral nodes of this session at or below `path`.
    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>>;

    /// Ends the session at the server and waits for the answer. All other handles must be gone.
    fn close(self) -> impl Future<Output = ()>;
}

/// Creates sessions.
pub trait ZkConnector: 'static {
    type Client: ZkClient;

    /// Makes one attempt to create a session, which takes at most about the session timeout.
    fn connect(&self) -> impl Future<Output = Result<Self::Client, ZkError>>;
}
