//! The right to decide over an operation.

use std::{mem, sync::Arc};

use fencegate_policies::operation::OperationId;
use fencegate_process::randomness::Guid;

use super::{
    in_hand::{InHand, Names},
    look::Changed,
};

/// The right to decide over an operation, valid for all guards of the store. It is given back when it is dropped.
pub struct HeldRight {
    pub(super) right: RightId,
    /// The receiver when it is given back.
    back: Option<Arc<dyn GivenBack>>,
}

/// Takes rights back, in the background.
pub(super) trait GivenBack: Send + Sync {
    fn release(&self, right: RightId);
}

/// The identity of one right: a later right over the same operation has another one.
#[derive(Debug, Clone)]
pub(super) struct RightId {
    pub(super) id: OperationId,
    holder: Arc<InHand>,
}

/// The answer to a request for the right.
pub enum Reserve {
    Yours(HeldRight),
    /// Ask again when told.
    Taken(Changed),
}

/// The result of a write under a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Durably,
    /// Nothing was changed: another guard has taken this one for dead, and has taken over the right.
    NotHeld,
}

impl RightId {
    pub(super) fn new(id: OperationId, holder: Guid, names: &Arc<Names>) -> Self {
        Self { id, holder: Arc::new(names.take(holder)) }
    }

    pub(super) fn holder(&self) -> Guid {
        self.holder.name()
    }
}

impl HeldRight {
    pub(super) fn new(right: RightId, back: Arc<dyn GivenBack>) -> Self {
        Self { right, back: Some(back) }
    }

    pub fn id(&self) -> OperationId {
        self.right.id
    }

    /// The caller's next statement gives the right back.
    pub(super) fn spent(mut self) -> RightId {
        drop(mem::take(&mut self.back));
        self.right.clone()
    }
}

impl Drop for HeldRight {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            back.release(self.right.clone());
        }
    }
}
