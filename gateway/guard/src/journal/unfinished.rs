//! What people ask of the journal: which operations wait for their word, and what is to be forgotten.

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
    /// What an operator can look at: operations without a known outcome that nobody works on now.
    ///
    /// # Errors
    /// The store cannot be asked, here as below.
    pub async fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, Refused> {
        self.arbiter.unfinished(most).await
    }

    /// What is known under this reference.
    pub async fn by_reference(&self, reference: &str) -> Result<Option<(OperationId, Entry)>, Refused> {
        self.arbiter.by_reference(reference).await
    }

    /// Takes the operation in hand, for the decision of somebody who knows what came of it.
    pub async fn take_unfinished(self: &Arc<Self>, id: OperationId) -> Result<Taken, Refused> {
        let is_unknown = |entry: &Entry| entry.state == State::Admitted;
        if !self.arbiter.entry(&id).await?.as_ref().is_some_and(is_unknown) {
            return Ok(Taken::Settled);
        }
        let Some((reservation, entry)) = Reservation::at_once(self, id).await? else {
            return Ok(Taken::InHand);
        };
        // Whoever had reserved it meanwhile may have brought it to its end.
        let unknown = entry.filter(is_unknown);
        Ok(unknown.map_or(Taken::Settled, |entry| Taken::Yours(reservation, Box::new(entry))))
    }

    /// Forgets what is kept of a finished operation. False if there is none with this reference.
    pub async fn forget(&self, reference: &str) -> Result<bool, Refused> {
        match self.by_reference(reference).await? {
            Some((id, _)) => self.arbiter.forget(id).await,
            None => Ok(false),
        }
    }
}
