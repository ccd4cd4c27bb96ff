//! Operations that happen at most once, for upstreams without a guard: written down in ZooKeeper before they are sent.
//!
//! [`record`] is what is written, [`book`] writes it, under the lock of the request and nowhere else; [`sweep`] forgets
//! what has been kept long enough, [`open`] is for operators. A worker sees [`Admitted`] only.

pub mod book;
pub mod open;
pub mod record;
pub mod sweep;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::{key::ResourceKey, token::Token};
use hyper::StatusCode;
use tokio::{sync::oneshot, time::timeout};
use tracing::warn;

use crate::{again, guard::operation::Operation, randomness::Guid};

/// A request that is an operation, and the lock that it is to be sent under.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub operation: Operation,
    pub keys: Vec<ResourceKey>,
    /// Paths of the lock nodes: while the first word is written, all of them must be there.
    pub nodes: Arc<[String]>,
    /// Of the first dispatch.
    pub token: Token,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The client's own name for it.
    pub name: Option<String>,
}

/// Why an operation is not to be sent. Nothing of this request was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the operation was done before")]
    Done,
    #[error("its name was used for another request")]
    Mismatch,
    #[error("the same operation is running in this gateway")]
    InProgress,
    #[error(
        "nobody knows what came of operation {reference}; `{}` shows it",
        again::command(again::Of::Gateway, "once list")
    )]
    Unknown { reference: String },
    #[error("the lock was lost before the operation was written down")]
    Lost,
    #[error("as many operations are remembered as there may be")]
    Full,
    #[error("the record of the operation: {0}")]
    Foreign(String),
    #[error("{0}")]
    Service(String),
}

/// What came of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// The upstream answered, and said for certain.
    Done(StatusCode),
    /// Nothing: no byte was sent, or a comparing upstream refused the token.
    Nothing,
}

impl Came {
    fn word(self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Nothing => "nothing",
        }
    }
}

/// The right to send an operation, once. Dropped without a word, its outcome is unknown until an operator says it.
#[derive(Debug)]
pub struct Admitted {
    came: oneshot::Sender<Came>,
    written: oneshot::Receiver<()>,
}

impl Admitted {
    /// Returns when that is written down, or ZooKeeper is away; then it is written as soon as it is back.
    pub async fn came(self, came: Came) {
        if self.came.send(came).is_err() {
            return warn!(came = came.word(), "nobody is left to write down what came of an operation");
        }
        if timeout(PATIENCE, self.written).await.is_err() {
            warn!(came = came.word(), "once.written_late");
        }
    }
}

/// An operation that was admitted to nobody yet: dropped, nothing came of it.
pub(crate) struct Unsent(Option<Admitted>);

impl Unsent {
    pub(crate) fn new(admitted: Admitted) -> Self {
        Self(Some(admitted))
    }

    pub(crate) fn handed_out(mut self) -> Admitted {
        self.0.take().expect("taken here only")
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(admitted) = self.0.take() {
            // Fails when the session's thread has refused it already.
            admitted.came.send(Came::Nothing).ok();
        }
    }
}

/// How long the answer to an operation waits until it is written down that there was one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks a session's thread for an operation; see [`book::serve`].
pub struct Admission {
    pub(crate) wanted: Wanted,
    pub(crate) answer: oneshot::Sender<Result<(), Refused>>,
    pub(crate) came: oneshot::Receiver<Came>,
    pub(crate) written: oneshot::Sender<()>,
    pub(crate) underway: Arc<Underway>,
}

impl Admission {
    pub(crate) fn new(
        wanted: Wanted,
        underway: Arc<Underway>,
    ) -> (Self, oneshot::Receiver<Result<(), Refused>>, Admitted) {
        let (answer, answered) = oneshot::channel();
        let (says, came) = oneshot::channel();
        let (written, hears) = oneshot::channel();
        let admission = Self { wanted, answer, came, written, underway };
        (admission, answered, Admitted { came: says, written: hears })
    }
}

/// The attempts that run in this gateway.
#[derive(Debug, Default)]
pub struct Underway(Mutex<HashSet<Guid>>);

/// Keeps an attempt among those that run.
pub(crate) struct Mark {
    underway: Arc<Underway>,
    attempt: Guid,
}

impl Underway {
    pub(crate) fn mark(self: &Arc<Self>, attempt: Guid) -> Mark {
        self.attempts().insert(attempt);
        Mark { underway: self.clone(), attempt }
    }

    fn contains(&self, attempt: &str) -> bool {
        Guid::parse(attempt).is_some_and(|attempt| self.attempts().contains(&attempt))
    }

    fn attempts(&self) -> MutexGuard<'_, HashSet<Guid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.underway.attempts().remove(&self.attempt);
    }
}
