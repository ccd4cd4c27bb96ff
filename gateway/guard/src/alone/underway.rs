//! Which operations somebody has in hand now.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use fencegate_policies::operation::OperationId;
use tokio::sync::{Notify, futures::OwnedNotified};

/// Operations that somebody has reserved.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    reserved: HashMap<OperationId, Arc<Notify>>,
    /// Those of them that are at work, or about to be: their end is still to come.
    running: HashSet<OperationId>,
}

impl Underway {
    /// Nobody has it: it is the caller's from now on. Otherwise for who waits until somebody lets go of it.
    pub(crate) fn reserve(&mut self, id: OperationId) -> Result<(), OwnedNotified> {
        match self.reserved.get(&id) {
            Some(told) => Err(told.clone().notified_owned()),
            None => {
                self.reserved.insert(id, Arc::default());
                Ok(())
            }
        }
    }

    /// Those that run or are about to.
    pub(crate) fn running(&self) -> HashSet<OperationId> {
        self.running.clone()
    }

    pub(crate) fn is_reserved(&self, id: &OperationId) -> bool {
        self.reserved.contains_key(id)
    }

    /// From before its admission is written down until whoever has reserved it lets go of it.
    pub(crate) fn runs(&mut self, id: OperationId) {
        self.running.insert(id);
    }

    pub(crate) fn let_go(&mut self, id: &OperationId) {
        self.running.remove(id);
        if let Some(told) = self.reserved.remove(id) {
            told.notify_waiters();
        }
    }
}
