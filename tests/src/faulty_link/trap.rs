//! What becomes of the next operation of a kind, and the word that it has met its fate.

use tokio::sync::oneshot;

use super::Operation;
use crate::{origin::Latch, patience::patiently};

/// What becomes of an operation.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It never arrives, nor does anything behind it on its connection.
    Vanishes,
    /// It is done, and the connection breaks before the answer.
    AnswerLost,
    /// It is done, and the answer, with all behind it, comes when let go.
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
