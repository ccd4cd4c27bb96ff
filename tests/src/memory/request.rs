//! The requests of a client and the answers of a server.

use fencegate_zookeeper::session::client::{CreatedNode, MultiError, MultiOp, NodeCreateMode, NodeStat};

/// One request. Its paths have been checked by the client, as the real library does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerRequest {
    Create {
        path: String,
        data: Vec<u8>,
        kind: NodeCreateMode,
    },
    Delete {
        path: String,
    },
    Children {
        path: String,
        watch: bool,
    },
    /// Lists the children of several nodes.
    ChildrenOf {
        paths: Vec<String>,
    },
    Seen {
        path: String,
    },
    Data {
        path: String,
        watch: bool,
    },
    Sync {
        path: String,
    },
    Commit {
        steps: Vec<OwnedMultiOp>,
    },
    Ephemerals {
        prefix: String,
    },
    /// Keeps the session alive.
    Ping,
    /// Ends the session.
    Close,
}

/// A [`MultiOp`] that owns its data, so that it can be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnedMultiOp {
    Check { path: String, version: i32 },
    Create { path: String, data: Vec<u8>, kind: NodeCreateMode },
    Set { path: String, data: Vec<u8> },
    Delete { path: String, version: Option<i32> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerAnswer {
    Done,
    Created(CreatedNode),
    Children(Vec<String>),
    ChildrenOf(Vec<Option<Vec<String>>>),
    Seen(Option<NodeStat>),
    Data(Vec<u8>, NodeStat),
    Committed(Vec<Option<String>>),
    Ephemerals(Vec<String>),
}

pub(super) type RequestOutcome = Result<ServerAnswer, MultiError>;

impl From<&MultiOp<'_>> for OwnedMultiOp {
    fn from(step: &MultiOp<'_>) -> Self {
        match *step {
            MultiOp::Check { path, version } => Self::Check { path: path.to_owned(), version },
            MultiOp::Create { path, data, kind } => {
                Self::Create { path: path.to_owned(), data: data.to_owned(), kind }
            }
            MultiOp::Set { path, data } => Self::Set { path: path.to_owned(), data: data.to_owned() },
            MultiOp::Delete { path, version } => Self::Delete { path: path.to_owned(), version },
        }
    }
}
