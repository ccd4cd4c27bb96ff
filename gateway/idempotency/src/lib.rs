//! Operations that are executed at most once, for upstreams without a guard: recorded in ZooKeeper before they are sent.
//! A worker gets an [`OperationPermit`] only.
//!
//! - [`record`]: the idempotency record of an operation
//! - [`write_ahead`]: writes the record before the request is sent, if its shard has capacity, and only under the
//!   lock of the request; [`error`]: the reasons for which it does not
//! - [`expiry`]: deletes records after their retention, and counts unknown outcomes in [`index`], which also
//!   counts the operations of each shard
//! - [`quota`]: the share of each route and each client; [`unresolved`]: what operators list and resolve
//!
//! Operations at a guard are in its journal, in `fencegate-guard`.

pub mod error;
pub mod expiry;
pub mod index;
pub mod quota;
pub mod record;
pub mod unresolved;
pub mod write_ahead;

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    operation::FencingOperationHeader,
    plan::{OperationEndStatus, OperationQuota},
    token::FencingToken,
};
use tokio::{sync::oneshot, time::timeout};
use tracing::warn;

use self::{error::AdmitOperationError, quota::OperationQuotaOwner};

/// A request that is an operation, and the lock under which it is to be sent.
#[derive(Debug, Clone)]
pub struct OperationToRecord {
    pub operation: FencingOperationHeader,
    pub keys: Vec<ResourceKey>,
    /// Paths of the lock nodes: the transaction that writes the record checks that all of them exist.
    pub nodes: Arc<[String]>,
    /// The token of the first dispatch of the request.
    pub token: FencingToken,
    pub method: String,
    /// The path and query of the request.
    pub target: String,
    /// The `Idempotency-Key` of the request.
    pub name: Option<String>,
    pub owner: OperationQuotaOwner,
    /// The number of operations of this owner that may be recorded.
    pub memory: OperationQuota,
}

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationOutcome {
    /// The upstream gave a final answer, with this status.
    Done(u16),
    /// The operation was not executed: no byte was sent, a comparing upstream refused the token, or the service refused
    /// to begin.
    NotExecuted,
}

impl OperationOutcome {
    fn label(self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::NotExecuted => "nothing",
        }
    }
}

/// The right to send an operation, once. If it is dropped before [`OperationPermit::complete`], the outcome is unknown until an
/// operator resolves it.
#[derive(Debug)]
pub struct OperationPermit(Box<OperationPermitInner>);

/// The content of a permit. It is boxed, because every request reserves memory for a permit.
#[derive(Debug)]
struct OperationPermitInner {
    /// Statuses that the route counts as final, beside the usual ones.
    finals: Vec<u16>,
    came: oneshot::Sender<OperationOutcome>,
    written: oneshot::Receiver<()>,
}

impl OperationPermit {
    /// The outcome of the operation after a complete response with this status; `None` if the outcome stays unknown.
    pub fn outcome_for_status(&self, status: u16) -> Option<OperationOutcome> {
        match OperationEndStatus::from_status(status, &self.0.finals) {
            OperationEndStatus::Final => Some(OperationOutcome::Done(status)),
            OperationEndStatus::NotStarted => Some(OperationOutcome::NotExecuted),
            OperationEndStatus::Unknown => None,
        }
    }

    /// Records the outcome, and returns when it is recorded. If ZooKeeper cannot be reached, this returns early, and
    /// the outcome is recorded when ZooKeeper is back.
    pub async fn complete(self, came: OperationOutcome) {
        let OperationPermitInner { came: says, written, .. } = *self.0;
        if says.send(came).is_err() {
            return warn!(
                came = came.label(),
                "the outcome of an operation was not recorded, because the task that records it has ended"
            );
        }
        if timeout(RECORD_TIMEOUT, written).await.is_err() {
            warn!(came = came.label(), "once.written_late");
        }
    }
}

/// An operation that was admitted and not delivered to its caller yet. If it is dropped,
/// [`OperationOutcome::NotExecuted`] is recorded.
pub struct OperationPermitCancelGuard(Option<OperationPermit>);

impl OperationPermitCancelGuard {
    pub fn new(admitted: OperationPermit) -> Self {
        Self(Some(admitted))
    }

    pub fn into_delivered_permit(mut self) -> OperationPermit {
        self.0.take().expect("taken here only")
    }
}

impl Drop for OperationPermitCancelGuard {
    fn drop(&mut self) {
        if let Some(admitted) = self.0.take() {
            // Sending fails if the session's thread has already refused the operation.
            admitted.0.came.send(OperationOutcome::NotExecuted).ok();
        }
    }
}

/// The longest time that the response to an operation waits until its outcome is recorded.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// A request to a session's thread to admit an operation; see [`write_ahead::run_operation`].
pub struct OperationAdmissionRequest {
    pub wanted: OperationToRecord,
    pub answer: oneshot::Sender<Result<(), AdmitOperationError>>,
    pub came: oneshot::Receiver<OperationOutcome>,
    pub written: oneshot::Sender<()>,
}

impl OperationAdmissionRequest {
    pub fn new(
        wanted: OperationToRecord,
    ) -> (Self, oneshot::Receiver<Result<(), AdmitOperationError>>, OperationPermit) {
        let (answer, answered) = oneshot::channel();
        let (says, came) = oneshot::channel();
        let (written, hears) = oneshot::channel();
        let finals = wanted.operation.finals.clone();
        let admission = Self { wanted, answer, came, written };
        (
            admission,
            answered,
            OperationPermit(Box::new(OperationPermitInner { finals, came: says, written: hears })),
        )
    }
}
