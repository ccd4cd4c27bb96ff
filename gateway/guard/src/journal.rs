//! Keeps an operation from happening twice. Fencing alone does not: a client that got no response retries with a
//! newer token.
//!
//! A request reserves the name of its operation first. So between its lookup and the record of its admission no other
//! request can look up or record the same operation.

mod unresolved;

use std::sync::Arc;

use fencegate_guard_store::{
    error::DispatchRefusedError,
    operation::{JournalEntryState, OperationJournalEntry, StoredResponse},
};
use fencegate_policies::operation::{FencingOperationHeader, same_resource};

use crate::{
    guard::Guard,
    reserve::{IdempotentRequest, OperationReservation, ReservedOperation},
    waiter::{ClientWaitLimit, WaitingClient},
};

/// The journal's record of an operation.
pub enum JournalLookup {
    New(ReservedOperation),
    /// The operation was done, with this response.
    Done(StoredResponse),
    /// The operation was done, but its response is not known.
    DoneUnseen,
    /// The operation was admitted, and its outcome is unknown.
    Unknown(ReservedOperation, Box<OperationJournalEntry>),
}

/// The result of reserving an operation with an unknown outcome.
pub enum ReserveUnresolvedOutcome {
    Taken(OperationReservation, Box<OperationJournalEntry>),
    /// Another request holds the operation's lock.
    InProgress,
    /// There is no such operation, or its outcome is known.
    Settled,
}

impl Guard {
    /// Waits until no other request holds the operation, reserves it, and returns the journal's record of it.
    ///
    /// # Errors
    /// Returns an error if another request holds the operation for longer than this request may wait, if the
    /// name was used for another request, or if the journal is full.
    pub async fn reserve_and_look_up(
        self: &Arc<Self>,
        wanted: IdempotentRequest,
        wait_limit: &mut ClientWaitLimit<'_, impl WaitingClient>,
    ) -> Result<JournalLookup, DispatchRefusedError> {
        let FencingOperationHeader { id, former, .. } = wanted.operation;
        let mut reservation = OperationReservation::new(self, id);
        let mut known = reservation.acquire(wait_limit).await?;
        if let (None, Some(former)) = (&known, former)
            && self.backend.entry(&former).await?.is_some()
        {
            // The operation keeps the name that a former build gave it, because that name was reported to
            // operators and clients. The entry is read again under the lock: the request that held the lock
            // before may have ended the operation, and its entry may be gone.
            known = reservation.take_former_lock(former, wait_limit).await?;
        }
        let Some(entry) = known else {
            let journal = self.backend.journal();
            let most = self.config.journal.most;
            if journal.bytes >= most {
                return Err(DispatchRefusedError::JournalFull { bytes: journal.bytes, most });
            }
            return Ok(JournalLookup::New(ReservedOperation::new(reservation, wanted)));
        };
        if !entry.matches(&wanted.operation) || !same_resource(&entry.keys, &wanted.keys) {
            return Err(DispatchRefusedError::Mismatch);
        }
        Ok(match entry.state {
            JournalEntryState::Done { answer: Some(answer), .. } => JournalLookup::Done(answer),
            JournalEntryState::Done { answer: None, .. } | JournalEntryState::Resolved { .. } => {
                JournalLookup::DoneUnseen
            }
            JournalEntryState::Admitted => {
                JournalLookup::Unknown(ReservedOperation::new(reservation, wanted), Box::new(entry))
            }
        })
    }

    /// Whether an execution of the operation may still run, or begin. While it may, the upstream's answer "not
    /// done" is not final.
    ///
    /// # Errors
    /// Returns an error if the store is not reachable.
    pub async fn may_still_run(&self, entry: &OperationJournalEntry) -> Result<bool, DispatchRefusedError> {
        self.backend.may_still_run(entry).await
    }
}
