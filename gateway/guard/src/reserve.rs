//! The reservation of an operation, and the request that holds it.

use std::sync::Arc;

use fencegate_guard_store::{
    error::DispatchRefusedError,
    operation::{JournalEntryState, JournalUpdate, OperationJournalEntry, ResolutionSource, StoredResponse},
    store::FORMAT,
    wall_clock::wall_clock_seconds,
};
use fencegate_policies::{
    key::ResourceKey,
    operation::{FencingOperationHeader, OperationId},
    plan::{self, OperationEndStatus},
    token::FencingToken,
};
use tokio::time::sleep_until;

use crate::{
    backend_types::{OperationReservationHandle, OperationToAdmit, ReserveOperationOutcome},
    guard::Guard,
    waiter::{ClientWaitLimit, WaitingClient},
};

/// A request with an `Idempotency-Key`.
#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    pub operation: FencingOperationHeader,
    pub keys: Arc<[ResourceKey]>,
    pub token: FencingToken,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The value of the request's `Idempotency-Key` field, if it is known.
    pub name: Option<String>,
}

/// The right to decide over an operation; released when dropped.
pub struct OperationReservation {
    guard: Arc<Guard>,
    id: OperationId,
    /// The lock of the operation's present name. Both locks are released on drop.
    lock: Option<OperationReservationHandle>,
    /// The lock of the operation's other name. Set if a former build may have given the operation another name
    /// than this build does.
    former_lock: Option<OperationReservationHandle>,
}

/// A request that has reserved its operation, and may run if the journal does not know it.
pub struct ReservedOperation {
    pub reservation: OperationReservation,
    request: IdempotentRequest,
}

impl OperationReservation {
    /// Reserves an operation at once, and reads its entry. `None` if it is reserved already.
    pub(crate) async fn try_reserve(
        guard: &Arc<Guard>,
        id: OperationId,
    ) -> Result<Option<(Self, Option<OperationJournalEntry>)>, DispatchRefusedError> {
        let mut reservation = Self::new(guard, id);
        Ok(match guard.backend.reserve(id).await? {
            ReserveOperationOutcome::Held(_) => None,
            ReserveOperationOutcome::Acquired(lock, entry) => {
                reservation.lock = Some(lock);
                Some((reservation, entry.map(|entry| *entry)))
            }
        })
    }

    /// A reservation that holds no lock yet.
    pub(crate) fn new(guard: &Arc<Guard>, id: OperationId) -> Self {
        Self { guard: guard.clone(), id, lock: None, former_lock: None }
    }

    /// Waits until no other request holds the lock, acquires it, and returns the operation's entry.
    pub(crate) async fn acquire(
        &mut self,
        wait_limit: &mut ClientWaitLimit<'_, impl WaitingClient>,
    ) -> Result<Option<OperationJournalEntry>, DispatchRefusedError> {
        let (lock, entry) = self.wait_for_lock(self.id, wait_limit).await?;
        self.lock = Some(lock);
        Ok(entry)
    }

    /// Also acquires the lock of the name that a former build gave the operation. If there is an entry under that
    /// name, the operation keeps that name.
    pub(crate) async fn take_former_lock(
        &mut self,
        former: OperationId,
        wait_limit: &mut ClientWaitLimit<'_, impl WaitingClient>,
    ) -> Result<Option<OperationJournalEntry>, DispatchRefusedError> {
        let (lock, entry) = self.wait_for_lock(former, wait_limit).await?;
        self.former_lock = Some(lock);
        if entry.is_some() {
            self.id = former;
            std::mem::swap(&mut self.lock, &mut self.former_lock);
        }
        Ok(entry)
    }

    async fn wait_for_lock(
        &self,
        id: OperationId,
        wait_limit: &mut ClientWaitLimit<'_, impl WaitingClient>,
    ) -> Result<(OperationReservationHandle, Option<OperationJournalEntry>), DispatchRefusedError> {
        loop {
            let changed = match self.guard.backend.reserve(id).await? {
                ReserveOperationOutcome::Acquired(lock, entry) => {
                    return Ok((lock, entry.map(|entry| *entry)));
                }
                ReserveOperationOutcome::Held(changed) => changed,
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(wait_limit.deadline) => return Err(DispatchRefusedError::InProgress),
                () = wait_limit.client.wait_client_disconnected() => return Err(DispatchRefusedError::InProgress),
            }
        }
    }

    /// The lock, for the call that ends the dispatch.
    pub(crate) fn lock_mut(&mut self) -> &mut Option<OperationReservationHandle> {
        &mut self.lock
    }

    /// Resolves the operation as done. The record is durable when this returns.
    pub async fn resolve_done(
        self,
        entry: &OperationJournalEntry,
        how: ResolutionSource,
    ) -> Result<(), DispatchRefusedError> {
        let state = JournalEntryState::Resolved { at: self.guard.backend.store_time_seconds(), how };
        let entry = Box::new(OperationJournalEntry { state, ..entry.clone() });
        self.guard.metrics.record_operation("resolved-done");
        self.update_entry(JournalUpdate::Entry(entry)).await
    }

    /// Resolves the operation as not done. It may run when this returns.
    pub async fn resolve_not_done(&self) -> Result<(), DispatchRefusedError> {
        self.guard.metrics.record_operation("resolved-not-done");
        self.update_entry(self.forget_update()).await
    }

    async fn update_entry(&self, writing: JournalUpdate) -> Result<(), DispatchRefusedError> {
        match &self.lock {
            Some(lock) => self.guard.backend.update_entry(lock, writing).await,
            None => Ok(()),
        }
    }

    pub(crate) fn forget_update(&self) -> JournalUpdate {
        self.guard.metrics.record_operation("forgotten");
        JournalUpdate::Forget
    }
}

impl Drop for OperationReservation {
    fn drop(&mut self) {
        for lock in [self.lock.take(), self.former_lock.take()].into_iter().flatten() {
            self.guard.backend.release(lock);
        }
    }
}

impl ReservedOperation {
    pub(crate) fn new(reservation: OperationReservation, wanted: IdempotentRequest) -> Self {
        Self { reservation, request: wanted }
    }

    pub fn id(&self) -> OperationId {
        self.reservation.id
    }

    pub fn reference(&self) -> String {
        self.id().reference()
    }

    fn entry(&self, state: JournalEntryState) -> OperationJournalEntry {
        let wanted = &self.request;
        OperationJournalEntry {
            format: FORMAT,
            fingerprint: wanted.operation.fingerprint.to_string(),
            keys: wanted.keys.to_vec(),
            token: wanted.token,
            method: wanted.method.clone(),
            target: wanted.target.clone(),
            name: wanted.name.clone(),
            askable: wanted.operation.askable,
            admitted: wall_clock_seconds(),
            began: Some(self.reservation.guard.backend.store_time_seconds()),
            keep: wanted.operation.keep,
            state,
        }
    }

    /// The entry, to be written in the step that admits the dispatch.
    pub(crate) fn operation_to_admit(&self) -> Option<OperationToAdmit<'_>> {
        let lock = self.reservation.lock.as_ref()?;
        Some(OperationToAdmit { lock, entry: Box::new(self.entry(JournalEntryState::Admitted)) })
    }

    /// The change that the response makes. It is [`JournalUpdate::Nothing`] if the response leaves the outcome open,
    /// and the operation stays unknown. Bodies are kept only in the first half of the journal, because the entries
    /// alone keep operations from happening twice.
    pub(crate) fn completion_update(
        &self,
        answer: StoredResponse,
        journal: &plan::IdempotencyJournalSettings,
    ) -> JournalUpdate {
        let guard = &self.reservation.guard;
        let finals = [&journal.final_statuses[..], &self.request.operation.finals].concat();
        match OperationEndStatus::from_status(answer.status, &finals) {
            OperationEndStatus::Final => guard.metrics.record_operation("done"),
            OperationEndStatus::NotStarted => return self.reservation.forget_update(),
            OperationEndStatus::Unknown => {
                guard.metrics.record_operation("unknown");
                return JournalUpdate::Nothing;
            }
        }
        let has_room = guard.backend.journal().bytes <= journal.most / 2;
        let body = answer.body.filter(|body| has_room && body.len() <= journal.max_body);
        let state = JournalEntryState::Done {
            at: guard.backend.store_time_seconds(),
            answer: Some(StoredResponse { body, ..answer }),
        };
        JournalUpdate::Entry(Box::new(self.entry(state)))
    }
}
