//! The fate of the next operation of a kind, and the signal that the operation has met it.

use fencegate_testkit::wait::wait_until;
use tokio::sync::oneshot;

use super::LockNodeOperation;
use crate::origin::Latch;

/// What becomes of an operation.
#[derive(Debug, Clone)]
pub enum OperationFault {
    /// The operation never arrives, and neither does any later message of its connection.
    Vanishes,
    /// The operation is done, and the connection breaks before its answer.
    AnswerLost,
    /// The operation is done. Its answer, and every message behind it, waits for the latch.
    AnswerHeld(Latch),
}

pub(super) struct FaultTrap {
    pub(super) operation: LockNodeOperation,
    pub(super) fate: OperationFault,
    pub(super) sprung: oneshot::Sender<()>,
}

/// Returns when the operation has got its fault.
pub struct FaultTriggered {
    pub(super) what: String,
    pub(super) event: oneshot::Receiver<()>,
}

impl FaultTriggered {
    /// # Panics
    /// If it did not happen in time.
    pub async fn wait(self) {
        let Self { what, event } = self;
        wait_until(&what, event, || "nothing").await.expect("the link lives on");
    }
}
