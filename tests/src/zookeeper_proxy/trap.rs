//! The fault of the next operation of a kind, and the signal that it was applied.

use fencegate_testkit::wait::wait_until;
use tokio::sync::oneshot;

use super::LockNodeOperation;
use crate::origin::Latch;

/// The fault of an operation.
#[derive(Debug, Clone)]
pub enum OperationFault {
    /// The operation does not arrive, and neither does any later message of its connection.
    Vanishes,
    /// The operation is carried out, and the connection breaks before its answer.
    AnswerLost,
    /// The operation is carried out. Its answer, and every message after it, waits for the latch.
    AnswerHeld(Latch),
}

pub(super) struct FaultTrap {
    pub(super) operation: LockNodeOperation,
    pub(super) fate: OperationFault,
    pub(super) sprung: oneshot::Sender<()>,
}

/// A wait until the fault was applied to the operation.
pub struct FaultTriggered {
    pub(super) what: String,
    pub(super) event: oneshot::Receiver<()>,
}

impl FaultTriggered {
    /// Waits until the fault was applied.
    ///
    /// # Panics
    /// If the fault is not applied in time.
    pub async fn wait(self) {
        let Self { what, event } = self;
        wait_until(&what, event, || "nothing").await.expect("the link lives on");
    }
}
