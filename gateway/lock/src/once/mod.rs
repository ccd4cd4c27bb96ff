//! Operations that happen at most once, for upstreams without a guard: written down in ZooKeeper before they are sent.
//!
//! [`record`] is what is written, [`write_ahead`] writes it, where [`shelves`] have room, under the lock of the request
//! and nowhere else; [`sweep`] forgets what has been kept long enough and counts what is unknown, in [`census`];
//! [`unresolved`] is for operators. A worker sees [`Admitted`] only.

pub mod census;
pub mod denied;
pub mod record;
pub mod room;
pub mod shelves;
pub mod sweep;
pub mod unresolved;
pub mod write_ahead;

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    operation::Operation,
    plan::{Ending, Memory},
    token::Token,
};
use tokio::{sync::oneshot, time::timeout};
use tracing::warn;

use self::{denied::Denied, room::Owner};

/// A request that is an operation, and the lock that it is to be sent under.
#[derive(Debug, Clone)]
pub struct Unwritten {
    pub operation: Operation,
    pub keys: Vec<ResourceKey>,
    /// Paths of the lock nodes: while the first word is written, all of them must be there.
    pub nodes: Arc<[String]>,
    /// Of the first dispatch.
    pub token: Token,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The `Idempotency-Key` that it came with.
    pub name: Option<String>,
    pub owner: Owner,
    /// How many of its owner may be remembered.
    pub memory: Memory,
}

/// What came of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// The upstream answered, and said for certain.
    Done(u16),
    /// Nothing: no byte was sent, a comparing upstream refused the token, or the service did not take it up.
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
pub struct Admitted(Box<Right>);

/// Boxed: every request carries the place for it along.
#[derive(Debug)]
struct Right {
    /// Statuses that are its end beside those that always are.
    finals: Vec<u16>,
    came: oneshot::Sender<Came>,
    written: oneshot::Receiver<()>,
}

impl Admitted {
    /// What a complete answer of the upstream says; `None` where it leaves open what was done.
    pub fn told_by(&self, status: u16) -> Option<Came> {
        match Ending::of(status, &self.0.finals) {
            Ending::Over => Some(Came::Done(status)),
            Ending::NotTakenUp => Some(Came::Nothing),
            Ending::Unknown => None,
        }
    }

    /// Returns when that is written down, or ZooKeeper is away; then it is written as soon as it is back.
    pub async fn came(self, came: Came) {
        let Right { came: says, written, .. } = *self.0;
        if says.send(came).is_err() {
            return warn!(came = came.word(), "nobody is left to write down what came of an operation");
        }
        if timeout(PATIENCE, written).await.is_err() {
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
            admitted.0.came.send(Came::Nothing).ok();
        }
    }
}

/// How long the answer to an operation waits until it is written down that there was one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks a session's thread for an operation; see [`write_ahead::serve`].
pub struct Admission {
    pub(crate) wanted: Unwritten,
    pub(crate) answer: oneshot::Sender<Result<(), Denied>>,
    pub(crate) came: oneshot::Receiver<Came>,
    pub(crate) written: oneshot::Sender<()>,
}

impl Admission {
    pub(crate) fn new(wanted: Unwritten) -> (Self, oneshot::Receiver<Result<(), Denied>>, Admitted) {
        let (answer, answered) = oneshot::channel();
        let (says, came) = oneshot::channel();
        let (written, hears) = oneshot::channel();
        let finals = wanted.operation.finals.clone();
        let admission = Self { wanted, answer, came, written };
        (admission, answered, Admitted(Box::new(Right { finals, came: says, written: hears })))
    }
}
