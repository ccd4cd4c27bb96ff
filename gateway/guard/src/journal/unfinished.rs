//! What people ask of the journal: which operations wait for their word, and what is to be forgotten.

use std::sync::Arc;

use fencegate_policies::operation::OperationId;

use super::Taken;
use crate::{
    guard::Guard,
    operation::{Entry, State},
    refused::Refused,
    reserve::Reservation,
    store::Change,
};

/// Operations with an unknown outcome are counted up to here: each scrape reads so many ids.
const MOST_COUNTED: usize = 10_000;

impl Guard {
    /// How many operations wait for somebody's word on what came of them, [`MOST_COUNTED`] at most.
    pub fn unknown(&self) -> Result<usize, Refused> {
        let running = || self.lock().underway.running();
        // What began after the first look may have been written down, and what ended before the second not yet.
        let before = running();
        let open = self.store.unfinished_ids(MOST_COUNTED).map_err(|error| self.unreadable(&error))?;
        let after = running();
        Ok(open.iter().filter(|id| !before.contains(id) && !after.contains(id)).count())
    }

    /// What an operator can look at: operations without a known outcome that nobody works on now.
    pub fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, Refused> {
        let mut found = self.store.unfinished(most).map_err(|error| self.unreadable(&error))?;
        let state = self.lock();
        found.retain(|(id, _)| !state.underway.is_reserved(id));
        Ok(found)
    }

    /// What is known under this reference.
    pub fn by_reference(&self, reference: &str) -> Result<Option<(OperationId, Entry)>, Refused> {
        self.store.by_reference(reference).map_err(|error| self.unreadable(&error))
    }

    /// Takes the operation in hand, for the decision of somebody who knows what came of it.
    pub fn take_unfinished(self: &Arc<Self>, id: OperationId) -> Result<Taken, Refused> {
        let unknown = || {
            let entry = self.store.operation(&id).map_err(|error| self.unreadable(&error))?;
            Ok::<_, Refused>(entry.filter(|entry| entry.state == State::Admitted))
        };
        if unknown()?.is_none() {
            return Ok(Taken::Settled);
        }
        let Some(reservation) = Reservation::at_once(self, id) else { return Ok(Taken::InHand) };
        // Whoever had reserved it meanwhile may have brought it to its end.
        Ok(unknown()?.map_or(Taken::Settled, |entry| Taken::Yours(reservation, Box::new(entry))))
    }

    /// Forgets what is kept of a finished operation. False if there is none with this reference.
    pub async fn forget(&self, reference: &str) -> Result<bool, Refused> {
        let found = self.by_reference(reference)?.filter(|(_, entry)| entry.state != State::Admitted);
        let moment = {
            let state = self.lock();
            let free = found.map(|(id, _)| id).filter(|id| !state.underway.is_reserved(id));
            let Some(id) = free else { return Ok(false) };
            self.committer.submit(vec![Change::ForgetFinished { id, before: u64::MAX }])
        };
        self.durable(moment).await.map(|()| true)
    }
}
