//! The operations that are reserved or running now.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use fencegate_policies::operation::OperationId;
use tokio::sync::{Notify, futures::OwnedNotified};

/// The reserved operations, and those of them that run.
#[derive(Debug, Default)]
pub(crate) struct ActiveOperations {
    reserved: HashMap<OperationId, Arc<Notify>>,
    /// The operations that run or are about to run, and whose end is not written yet.
    running: HashSet<OperationId>,
}

impl ActiveOperations {
    /// Reserves the operation for the caller. If it is reserved already, the error resolves when it is released.
    pub(crate) fn reserve(&mut self, id: OperationId) -> Result<(), OwnedNotified> {
        match self.reserved.get(&id) {
            Some(notifier) => Err(notifier.clone().notified_owned()),
            None => {
                self.reserved.insert(id, Arc::default());
                Ok(())
            }
        }
    }

    /// The operations that run or are about to run.
    pub(crate) fn running(&self) -> HashSet<OperationId> {
        self.running.clone()
    }

    pub(crate) fn is_reserved(&self, id: &OperationId) -> bool {
        self.reserved.contains_key(id)
    }

    /// Counts the operation as running, from before its admission is written until it is released.
    pub(crate) fn mark_running(&mut self, id: OperationId) {
        self.running.insert(id);
    }

    pub(crate) fn release(&mut self, id: &OperationId) {
        self.running.remove(id);
        if let Some(notifier) = self.reserved.remove(id) {
            notifier.notify_waiters();
        }
    }
}
