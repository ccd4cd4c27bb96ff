//! The operators' side of the journal: lists unknown operations, resolves them, and forgets finished ones.

use std::sync::Arc;

use fencegate_policies::operation::OperationId;

use super::Taken;
use crate::{
    guard::Guard,
    operation::{Entry, State},
    refused::Refused,
    reserve::Reservation,
};

impl Guard {
    /// Operations with an unknown outcome that are not reserved now.
    ///
    /// # Errors
    /// The store cannot be asked, here as below.
    pub async fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, Refused> {
        self.arbiter.unfinished(most).await
    }

    /// The operation with this reference.
    pub async fn by_reference(&self, reference: &str) -> Result<Option<(OperationId, Entry)>, Refused> {
        self.arbiter.by_reference(reference).await
    }

    /// Reserves an unknown operation, so that an operator can resolve it.
    pub async fn take_unfinished(self: &Arc<Self>, id: OperationId) -> Result<Taken, Refused> {
        let is_unknown = |entry: &Entry| entry.state == State::Admitted;
        if !self.arbiter.entry(&id).await?.as_ref().is_some_and(is_unknown) {
            return Ok(Taken::Settled);
        }
        let Some((reservation, entry)) = Reservation::at_once(self, id).await? else {
            return Ok(Taken::InHand);
        };
        // The request that had reserved it may have ended it meanwhile.
        let unknown = entry.filter(is_unknown);
        Ok(unknown.map_or(Taken::Settled, |entry| Taken::Yours(reservation, Box::new(entry))))
    }

    /// Forgets a finished operation. False if there is none with this reference.
    pub async fn forget(&self, reference: &str) -> Result<bool, Refused> {
        match self.by_reference(reference).await? {
            Some((id, _)) => self.arbiter.forget(id).await,
            None => Ok(false),
        }
    }
}
