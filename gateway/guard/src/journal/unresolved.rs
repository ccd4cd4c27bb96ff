//! The operators' interface of the journal: lists unknown operations, resolves them, and forgets finished ones.

use std::sync::Arc;

use fencegate_guard_store::{
    error::DispatchRefusedError,
    operation::{JournalEntryState, OperationJournalEntry},
};
use fencegate_policies::operation::OperationId;

use super::ReserveUnresolvedOutcome;
use crate::{guard::Guard, reserve::OperationReservation};

impl Guard {
    /// Operations with an unknown outcome that are not reserved now.
    ///
    /// # Errors
    /// Returns an error if the store is not reachable, as all functions of this file do.
    pub async fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        self.backend.unresolved_operations(most).await
    }

    /// The operation with this reference.
    pub async fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        self.backend.find_by_reference(reference).await
    }

    /// Reserves an unknown operation, so that an operator can resolve it.
    pub async fn reserve_unresolved(
        self: &Arc<Self>,
        id: OperationId,
    ) -> Result<ReserveUnresolvedOutcome, DispatchRefusedError> {
        let is_unknown = |entry: &OperationJournalEntry| entry.state == JournalEntryState::Admitted;
        if !self.backend.entry(&id).await?.as_ref().is_some_and(is_unknown) {
            return Ok(ReserveUnresolvedOutcome::Settled);
        }
        let Some((reservation, entry)) = OperationReservation::try_reserve(self, id).await? else {
            return Ok(ReserveUnresolvedOutcome::InProgress);
        };
        // The request that had reserved the operation may have ended it between the two reads.
        let unknown = entry.filter(is_unknown);
        Ok(unknown.map_or(ReserveUnresolvedOutcome::Settled, |entry| {
            ReserveUnresolvedOutcome::Taken(reservation, Box::new(entry))
        }))
    }

    /// Forgets a finished operation. False if there is none with this reference.
    pub async fn forget(&self, reference: &str) -> Result<bool, DispatchRefusedError> {
        match self.find_by_reference(reference).await? {
            Some((id, _)) => self.backend.forget(id).await,
            None => Ok(false),
        }
    }
}
