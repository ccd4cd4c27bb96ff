//! Requests to a session, and their fates.

use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkError};

/// True for the write by which a gateway proves that its session is alive.
pub(crate) fn is_heartbeat(asked: SessionRequest<'_>) -> bool {
    let of_a_member =
        |step: &MultiOp<'_>| matches!(step, MultiOp::Set { path, .. } if path.contains("/members/"));
    matches!(asked, SessionRequest::Commit { steps } if steps.iter().any(of_a_member))
}

/// A request to a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SessionRequest<'a> {
    Create { path: &'a str, kind: NodeCreateMode },
    Data { path: &'a str },
    Commit { steps: &'a [MultiOp<'a>] },
    Delete { path: &'a str },
    Children { path: &'a str },
    ChildrenOf { paths: &'a [&'a str] },
    Other { path: &'a str },
}

impl<'a> SessionRequest<'a> {
    /// The path of the request; for a transaction, the path of its first step; for several reads, the first path.
    pub(crate) fn path(self) -> &'a str {
        match self {
            Self::Create { path, .. }
            | Self::Data { path }
            | Self::Delete { path }
            | Self::Children { path }
            | Self::Other { path } => path,
            Self::ChildrenOf { paths } => paths.first().copied().unwrap_or_default(),
            Self::Commit { steps } => match steps {
                [
                    MultiOp::Check { path, .. }
                    | MultiOp::Create { path, .. }
                    | MultiOp::Set { path, .. }
                    | MultiOp::Delete { path, .. },
                    ..,
                ] => path,
                [] => "",
            },
        }
    }
}

/// The fate of a request.
#[derive(Debug, Clone)]
pub(crate) enum ZkRequestFate {
    Passes,
    /// The request is not sent, and fails at once with this fault.
    Refused(ZkError),
    /// The transaction is not sent, and fails at once at this step.
    RefusedAt(usize, ZkError),
    /// The request is sent and done, and its answer is replaced by this error.
    Done(ZkError),
}

/// The error of a session for a request whose answer was lost.
pub(crate) fn unanswered() -> ZkError {
    ZkError::Ambiguous("the connection broke".into())
}

/// The error of a server that refuses a request because it is overloaded.
pub(crate) fn throttled() -> ZkError {
    ZkError::Refused("throttled".into())
}
