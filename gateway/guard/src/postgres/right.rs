//! The right to decide over an operation, and whether what its holder says of the operation is written.

use std::{mem, sync::Arc};

use fencegate_policies::operation::OperationId;
use fencegate_process::randomness::Guid;

use super::look::Changed;

/// The right to decide over an operation, over all guards of the store. Given back when it is dropped.
pub struct HeldRight {
    pub(super) right: RightId,
    /// Whom it is given back to.
    back: Option<Arc<dyn GivenBack>>,
}

/// Takes rights back, in the background.
pub(super) trait GivenBack: Send + Sync {
    fn release(&self, right: RightId);
}

/// Which right, and whose: a later one over the same operation is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RightId {
    pub(super) id: OperationId,
    pub(super) holder: Guid,
}

/// What comes of asking for it.
pub enum Reserve {
    Yours(HeldRight),
    /// Ask again when told.
    Taken(Changed),
}

/// Whether it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Durably,
    /// The right was taken over by another guard, which held this one for dead: nothing was changed.
    NotHeld,
}

impl HeldRight {
    pub(super) fn new(right: RightId, back: Arc<dyn GivenBack>) -> Self {
        Self { right, back: Some(back) }
    }

    pub fn id(&self) -> OperationId {
        self.right.id
    }

    /// It is given back with what is written by it.
    pub(super) fn spent(mut self) -> RightId {
        drop(mem::take(&mut self.back));
        self.right
    }
}

impl Drop for HeldRight {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            back.release(self.right);
        }
    }
}
