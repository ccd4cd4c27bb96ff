//! Operations of a guard with a store of its own: their reservations are in memory, and their entries in the
//! store.

use fencegate_guard_store::{
    error::DispatchRefusedError,
    operation::{JournalEntryState, JournalUpdate, OperationJournalEntry},
    store::{JournalSize, StoreMutation},
    store_clock::whole_seconds,
};
use fencegate_policies::operation::OperationId;

use super::LocalGuardBackend;
use crate::backend_types::{OperationReservationHandle, ReserveOperationOutcome};

/// Unknown operations are counted up to this number only, because each count reads all their ids.
const MOST_COUNTED: usize = 10_000;

impl LocalGuardBackend {
    pub(crate) fn reserve(&self, id: OperationId) -> Result<ReserveOperationOutcome, DispatchRefusedError> {
        if let Err(changed) = self.lock().active_operations.reserve(id) {
            return Ok(ReserveOperationOutcome::Held(Box::pin(changed)));
        }
        // Read after the reservation, so that no other request can change the entry.
        let known = self.entry(&id).inspect_err(|_| self.release(&id))?;
        Ok(ReserveOperationOutcome::Acquired(OperationReservationHandle::Local(id), known.map(Box::new)))
    }

    pub(crate) fn release(&self, id: &OperationId) {
        self.lock().active_operations.release(id);
    }

    pub(crate) async fn update_entry(
        &self,
        lock: Option<&OperationReservationHandle>,
        writing: JournalUpdate,
    ) -> Result<(), DispatchRefusedError> {
        let Some(OperationReservationHandle::Local(id)) = lock else { return Ok(()) };
        let id = *id;
        let change = match writing {
            JournalUpdate::Nothing => return Ok(()),
            JournalUpdate::Entry(entry) => StoreMutation::Operation { id, entry },
            JournalUpdate::Forget => StoreMutation::ForgetOperation { id },
        };
        self.wait_durable(self.commits.submit(vec![change])).await
    }

    pub(crate) fn entry(
        &self,
        id: &OperationId,
    ) -> Result<Option<OperationJournalEntry>, DispatchRefusedError> {
        self.store.operation(id).map_err(|error| self.read_error(&error))
    }

    pub(crate) fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        self.store.find_by_reference(reference).map_err(|error| self.read_error(&error))
    }

    pub(crate) fn may_still_run(&self, entry: &OperationJournalEntry) -> bool {
        // An upstream may answer with an error and go on working. No key is in doubt then, but a probe's answer
        // "not done" would come too early. So the operation may still run until enough of the store's time has
        // passed, too.
        let now = self.now();
        let longest = self.config.send_within + self.time.max_completion_delay(now);
        let began = entry.began.unwrap_or(entry.admitted);
        self.store_time_seconds() <= began.saturating_add(whole_seconds(longest)) || {
            let table = &self.lock().register;
            table.quarantined_until(&entry.keys, now).is_some()
                || table.may_still_be_executing(&entry.keys, entry.token, now)
        }
    }

    pub(crate) fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        let mut found = self.store.unresolved_operations(most).map_err(|error| self.read_error(&error))?;
        let state = self.lock();
        found.retain(|(id, _)| !state.active_operations.is_reserved(id));
        Ok(found)
    }

    /// The number of operations that have an unknown outcome and are not running, at most [`MOST_COUNTED`].
    pub(super) fn count_unknown(&self) -> Result<usize, DispatchRefusedError> {
        let running = || self.lock().active_operations.running();
        // Both reads are needed: an operation may begin after the first one, or end before the second one while its
        // outcome is not written yet.
        let before = running();
        let open =
            self.store.unresolved_operation_ids(MOST_COUNTED).map_err(|error| self.read_error(&error))?;
        let after = running();
        Ok(open.iter().filter(|id| !before.contains(id) && !after.contains(id)).count())
    }

    pub(crate) async fn forget(&self, id: OperationId) -> Result<bool, DispatchRefusedError> {
        if !self.entry(&id)?.is_some_and(|entry| entry.state != JournalEntryState::Admitted) {
            return Ok(false);
        }
        let moment = {
            let state = self.lock();
            if state.active_operations.is_reserved(&id) {
                return Ok(false);
            }
            self.commits.submit(vec![StoreMutation::ForgetFinished { id, before: u64::MAX }])
        };
        self.wait_durable(moment).await.map(|()| true)
    }

    pub(crate) fn journal(&self) -> JournalSize {
        self.store.journal()
    }
}
