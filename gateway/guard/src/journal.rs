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
    /// It was done, with this response.
    Done(StoredResponse),
    /// It was done, but its response is not known.
    DoneUnseen,
    /// It was admitted, and its outcome is unknown.
    Unknown(ReservedOperation, Box<OperationJournalEntry>),
}

/// The result of reserving an operation with an unknown outcome.
pub enum ReserveUnresolvedOutcome {
    Taken(OperationReservation, Box<OperationJournalEntry>),
    /// Another request holds its lock.
    InProgress,
    /// There is no such operation, or its outcome is known.
    Settled,
}

impl Guard {
    /// Reserves the operation, after the request that holds it now, and returns the journal's record of it.
    ///
    /// # Errors
    /// The operation runs for longer than this request may wait, or its name was used for another request.
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
            // The operation keeps the name that a former build gave it, because that name was reported to operators
            // and clients. The request that held it before may have ended it, and its entry may be forgotten.
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

    /// Whether an execution of the operation may still run, or begin. Then a "no" of the upstream is not final yet.
    ///
    /// # Errors
    /// The store is not reachable.
    pub async fn may_still_run(&self, entry: &OperationJournalEntry) -> Result<bool, DispatchRefusedError> {
        self.backend.may_still_run(entry).await
    }
}
