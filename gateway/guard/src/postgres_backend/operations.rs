//! Operations of a guard with a shared store: reservations and entries are rows of the database.

use fencegate_guard_postgres::postgres::OperationLockReply;
use fencegate_guard_store::{
    error::DispatchRefusedError,
    operation::{JournalUpdate, OperationJournalEntry},
    store::JournalSize,
    store_clock::whole_seconds,
};
use fencegate_policies::operation::OperationId;

use super::{PostgresBackend, admit::require_durable};
use crate::backend_types::{OperationReservationHandle, ReserveOperationOutcome};

impl PostgresBackend {
    pub(crate) async fn reserve(
        &self,
        id: OperationId,
    ) -> Result<ReserveOperationOutcome, DispatchRefusedError> {
        match self.record_result("reserve", self.postgres.reserve(id).await)? {
            OperationLockReply::Held(told) => Ok(ReserveOperationOutcome::Held(told)),
            // Read after the reservation, so that no other request can change the entry.
            OperationLockReply::Acquired(held) => Ok(ReserveOperationOutcome::Acquired(
                OperationReservationHandle::Postgres(held),
                self.entry(&id).await?.map(Box::new),
            )),
        }
    }

    pub(crate) async fn update_entry(
        &self,
        lock: &OperationReservationHandle,
        writing: JournalUpdate,
    ) -> Result<(), DispatchRefusedError> {
        let OperationReservationHandle::Postgres(held) = lock else { return Ok(()) };
        require_durable(self.record_result("journal", self.postgres.update_entry(held, writing).await)?)
    }

    pub(crate) async fn entry(
        &self,
        id: &OperationId,
    ) -> Result<Option<OperationJournalEntry>, DispatchRefusedError> {
        let id = *id;
        self.run_store_read(move |postgres| async move { postgres.operation(&id).await }).await
    }

    pub(crate) async fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        let reference = reference.to_owned();
        self.run_store_read(move |postgres| async move { postgres.find_by_reference(&reference).await }).await
    }

    /// Whether an execution of the operation may still run. Compares the entry's time with the store's time
    /// only. The guard that wrote the entry gave it a time that is not before the store's, and the store's time
    /// is never ahead of the time that has passed. So no execution counts as over too early.
    pub(crate) async fn may_still_run(
        &self,
        entry: &OperationJournalEntry,
    ) -> Result<bool, DispatchRefusedError> {
        let status = self.postgres.status();
        let longest = self.config.send_within + status.longest_execution.max(self.config.max_execution);
        let began = entry.began.unwrap_or(entry.admitted);
        let lately = status.time <= began.saturating_add(whole_seconds(longest));
        if lately {
            return Ok(true);
        }
        let keys = entry.keys.clone();
        let token = entry.token;
        self.run_store_read(
            move |postgres| async move { postgres.may_still_be_executing(&keys, token).await },
        )
        .await
    }

    pub(crate) async fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        self.run_store_read(move |postgres| async move { postgres.unresolved_operations(most).await }).await
    }

    pub(crate) async fn forget(&self, id: &OperationId) -> Result<bool, DispatchRefusedError> {
        let id = *id;
        self.run_store_read(move |postgres| async move { postgres.forget(&id).await }).await
    }

    pub(crate) fn journal(&self) -> JournalSize {
        self.postgres.status().journal
    }

    /// The latest possible present, in whole seconds of the store's time. Another guard may have moved that time
    /// since our last heartbeat, so an entry timed by this guard's own view would be forgotten up to a heartbeat
    /// early.
    pub(crate) fn store_time_seconds(&self) -> u64 {
        self.postgres.store_time()
    }
}
