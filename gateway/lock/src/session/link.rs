//! One ZooKeeper session, as the lock sees it: few operations, and errors that say what is known.
//!
//! The real one is [`super::zookeeper`]; a simulation brings its own. Every operation is *sent when the method is
//! called*, in call order, so two calls awaited together are pipelined; dropping the future cancels nothing. None has
//! a time limit: each ends with its answer, with [`Fault::Ambiguous`] when the connection breaks, or with
//! [`Fault::Over`] when the session ends.

use std::{future::Future, time::Duration};

/// What a failed operation tells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("no such node")]
    NoNode,
    #[error("the node exists")]
    NodeExists,
    #[error("the node has children")]
    NotEmpty,
    #[error("the node has another version")]
    BadVersion,
    /// Servers answer, and TLS is agreed on with none of them.
    #[error("TLS is not agreed on: {0}")]
    Tls(String),
    /// The server said that we may not, and nothing was done.
    #[error("ZooKeeper does not let us: {0}")]
    Denied(&'static str),
    /// The server said no, and nothing was done.
    #[error("refused by the server: {0}")]
    Refused(String),
    /// Done or not: the answer was lost.
    #[error("the answer was lost: {0}")]
    Ambiguous(String),
    /// The session has ended, and with it every ephemeral node of it, if not now then by its timeout.
    #[error("the session is over")]
    Over,
}

/// What is read of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The transaction that created the node.
    pub czxid: i64,
    /// The session that owns the node; 0 for a persistent one.
    pub owner: i64,
    pub version: i32,
    /// When it was made, by the same clock as `modified`.
    pub created: u64,
    /// When its data was last written: milliseconds since 1970 by the clock of the server that was the leader then.
    pub modified: u64,
    /// How many nodes stand below it.
    pub children: i32,
}

/// A created node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    pub seen: Seen,
    /// Of a sequential node; -1 for others.
    pub sequence: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Persistent,
    /// Removed by the server some time after its last child went.
    Container,
    Ephemeral,
    EphemeralSequential,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// Version -1: only that the node is there.
    Check {
        path: &'a str,
        version: i32,
    },
    Create {
        path: &'a str,
        data: &'a [u8],
        kind: Kind,
    },
    Set {
        path: &'a str,
        data: &'a [u8],
    },
    /// `None`: whatever its version.
    Delete {
        path: &'a str,
        version: Option<i32>,
    },
}

/// Why a transaction did nothing, or may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", step.map(|step| format!("step {step} of the transaction: ")).unwrap_or_default())]
pub struct Failed {
    /// The step that the server refused, counted from 0; none where the whole request failed.
    pub step: Option<usize>,
    pub fault: Fault,
}

/// Somebody who may change a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// `world:anyone`, `ip:10.0.0.0/8`.
    pub who: String,
    /// Of the letters `cdwa`.
    pub may: String,
}

impl Writer {
    pub fn is_everybody(&self) -> bool {
        self.who == "world:anyone"
    }
}

/// State of the session as far as this side knows. Never evidence that the session lives: see [`super::proof`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    Connected,
    Disconnected,
    Over,
}

/// A session. Dropping the last handle of it ends it at the server.
pub trait Link: 'static {
    /// Fires once, when the watched node changes or goes, or the session ends.
    type Watch: Future<Output = ()>;

    /// The session's id as it was at connect; see [`Link::reconnects`].
    fn id(&self) -> i64;
    /// Negotiated at the first connection.
    fn timeout(&self) -> Duration;
    /// The shortest that a server has granted at any connection so far: each may grant another one. `None`: it is not
    /// known of connections after the first.
    fn granted(&self) -> Option<Duration>;
    fn state(&self) -> ConnectionState;
    /// How often the connection was made anew. After each the id may be another (a server that does not know the
    /// session may silently give a new one), which only the owner of a node made now can tell.
    fn reconnects(&self) -> u64;
    /// Resolves at the next change of state.
    fn state_changed(&self) -> impl Future<Output = ()>;

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: Kind,
    ) -> impl Future<Output = Result<Created, Fault>>;
    /// An empty node that is not ours alone, which may be changed by whom `above` may be.
    fn create_like<'a>(
        &'a self,
        path: &'a str,
        _above: &'a str,
        kind: Kind,
    ) -> impl Future<Output = Result<(), Fault>> + 'a {
        let sent = self.create(path, b"", kind);
        async { sent.await.map(drop) }
    }
    fn delete(&self, path: &str) -> impl Future<Output = Result<(), Fault>>;
    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, Fault>>;
    fn seen(&self, path: &str) -> impl Future<Output = Result<Option<Seen>, Fault>>;
    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, Seen), Fault>>;
    /// Watches an existing node; [`Fault::NoNode`] leaves no watch behind.
    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, Fault>>;
    /// The children, and a watch that fires when one comes or goes, or the node itself goes.
    fn watch_children(&self, path: &str) -> impl Future<Output = Result<(Vec<String>, Self::Watch), Fault>>;
    /// Brings this session's server up to what the leader had committed. Not a quorum operation.
    fn sync(&self, path: &str) -> impl Future<Output = Result<(), Fault>>;
    /// All steps or none. Per step the path of what it created: the server completes sequential names.
    fn commit(&self, steps: &[Step<'_>]) -> impl Future<Output = Result<Vec<Option<String>>, Failed>>;
    /// A persistent node that this session makes at `path` from now on, in a transaction, may be changed by whom this
    /// one may be: it is about to be replaced.
    fn keep_access(&self, _path: &str) -> impl Future<Output = Result<(), Fault>> {
        std::future::ready(Ok(()))
    }
    /// Who may change a node, or what stands below it.
    fn writers(&self, _path: &str) -> impl Future<Output = Result<Vec<Writer>, Fault>> {
        std::future::ready(Ok(Vec::new()))
    }
    /// Whom the server takes us for, and who is meant to write beside us; nobody where it takes us for nobody. `None`:
    /// everybody may, or the server cannot be asked.
    fn meant(&self) -> impl Future<Output = Result<Option<Vec<String>>, Fault>> {
        std::future::ready(Ok(None))
    }
    /// Paths of all ephemeral nodes of this session at or below `path`.
    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, Fault>>;

    /// Ends the session at the server and waits for its word. All other handles must be gone.
    fn close(self) -> impl Future<Output = ()>;
}

/// Makes sessions.
pub trait Connect: 'static {
    type Link: Link;

    /// One attempt, bounded by about the session timeout.
    fn connect(&self) -> impl Future<Output = Result<Self::Link, Fault>>;
}
