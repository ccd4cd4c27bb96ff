//! What a client asks and what a server answers.

use fencegate_lock::session::link::{Created, Failed, Kind, Seen, Step};

/// One request. Paths have been checked by the client, as its library does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Create {
        path: String,
        data: Vec<u8>,
        kind: Kind,
    },
    Delete {
        path: String,
    },
    Children {
        path: String,
        watch: bool,
    },
    /// The children of several nodes.
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
        steps: Vec<OwnedStep>,
    },
    Ephemerals {
        prefix: String,
    },
    /// Keeps the session alive.
    Ping,
    /// Ends the session.
    Close,
}

/// A [`Step`] that travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnedStep {
    Check { path: String, version: i32 },
    Create { path: String, data: Vec<u8>, kind: Kind },
    Set { path: String, data: Vec<u8> },
    Delete { path: String, version: Option<i32> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Created(Created),
    Children(Vec<String>),
    ChildrenOf(Vec<Option<Vec<String>>>),
    Seen(Option<Seen>),
    Data(Vec<u8>, Seen),
    Committed(Vec<Option<String>>),
    Ephemerals(Vec<String>),
}

pub(super) type Outcome = Result<Answer, Failed>;

impl From<&Step<'_>> for OwnedStep {
    fn from(step: &Step<'_>) -> Self {
        match *step {
            Step::Check { path, version } => Self::Check { path: path.to_owned(), version },
            Step::Create { path, data, kind } => {
                Self::Create { path: path.to_owned(), data: data.to_owned(), kind }
            }
            Step::Set { path, data } => Self::Set { path: path.to_owned(), data: data.to_owned() },
            Step::Delete { path, version } => Self::Delete { path: path.to_owned(), version },
        }
    }
}
