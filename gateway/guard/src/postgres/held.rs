//! The right to decide over an operation, and what is written by it.

use std::{mem, sync::Arc};

use fencegate_policies::operation::OperationId;
use fencegate_process::randomness::Guid;

use super::look::Changed;
use crate::operation::Entry;

/// The right to decide over an operation, over all guards of the store. Given back when it is dropped.
pub struct Held {
    pub(super) right: Right,
    /// Whom it is given back to.
    back: Option<Arc<dyn GivenBack>>,
}

/// Takes rights back, in the background.
pub(super) trait GivenBack: Send + Sync {
    fn release(&self, right: Right);
}

/// Which right, and whose: a later one over the same operation is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) id: OperationId,
    pub(super) holder: Guid,
}

/// What comes of asking for it.
pub enum Reserve {
    Yours(Held),
    /// Ask again when told.
    Taken(Changed),
}

/// What becomes of the entry of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writing {
    /// It stays as it is.
    Nothing,
    Entry(Box<Entry>),
    Forget,
}

/// Whether it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Durably,
    /// The right was taken over by another guard, which held this one for dead: nothing was changed.
    NotHeld,
}

impl Held {
    pub(super) fn new(right: Right, back: Arc<dyn GivenBack>) -> Self {
        Self { right, back: Some(back) }
    }

    pub fn id(&self) -> OperationId {
        self.right.id
    }

    /// It is given back with what is written by it.
    pub(super) fn spent(mut self) -> Right {
        drop(mem::take(&mut self.back));
        self.right
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            back.release(self.right);
        }
    }
}
