//! The fate of the next operation of a kind, and the signal that the operation has met it.

use tokio::sync::oneshot;

use super::Operation;
use crate::{origin::Latch, patience::patiently};

/// What becomes of an operation.
#[derive(Debug, Clone)]
pub enum Fate {
    /// The operation never arrives, and neither does any later message of its connection.
    Vanishes,
    /// The operation is done, and the connection breaks before its answer.
    AnswerLost,
    /// The operation is done. Its answer, and every message behind it, waits for the latch.
    AnswerHeld(Latch),
}

pub(super) struct Trap {
    pub(super) operation: Operation,
    pub(super) fate: Fate,
    pub(super) sprung: oneshot::Sender<()>,
}

/// Tells when the operation has met its fate.
pub struct Sprung {
    pub(super) what: String,
    pub(super) event: oneshot::Receiver<()>,
}

impl Sprung {
    /// # Panics
    /// If it did not happen in time.
    pub async fn happened(self) {
        let Self { what, event } = self;
        patiently(&what, event, || "nothing").await.expect("the link lives on");
    }
}
