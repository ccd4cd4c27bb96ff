//! The backend of a guard: it decides over dispatches, and keeps the state. Every call of a guard to its backend
//! goes through this file.

use fencegate_guard_postgres::postgres::GuardMembershipLease;
use fencegate_guard_store::{
    admission::{
        DispatchEnd, GuardKeyView, InDoubtExecution, LivenessProbeAnswer, PresentedDispatch, QuarantineStatus,
    },
    dispatch_target::DispatchTarget,
    error::DispatchRefusedError,
    operation::{JournalUpdate, OperationJournalEntry},
    store::{CommitError, GuardStore, JournalSize},
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, token::FencingToken};
use fencegate_process::clock::BootInstant;

use crate::{
    backend_types::{
        AdmitCheckResult, AdmitFirstOrRetry, AdmittedDispatchId, DispatchSendRecord,
        OperationReservationHandle, OperationToAdmit, ReserveOperationOutcome, TokenEpochBounds,
    },
    local_backend::LocalGuardBackend,
    postgres_backend::PostgresBackend,
};

/// The backend that decides for a guard, and keeps its state.
pub(crate) enum GuardBackend {
    /// Decides in memory, and keeps the state in a file that no other guard uses.
    Local(Box<LocalGuardBackend>),
    /// A database that several guards share.
    Postgres(Box<PostgresBackend>),
}

impl GuardBackend {
    /// Compares the claim with the watermarks, announces it, and admits it if nothing is in the way. All that this
    /// writes is durable when it returns.
    ///
    /// `admitted` is set before the dispatch can count as in flight, so a caller that drops this future can end the
    /// dispatch.
    pub(crate) async fn try_admit(
        &self,
        phase: AdmitFirstOrRetry,
        claim: &PresentedDispatch,
        admitting: Option<OperationToAdmit<'_>>,
        admitted: &mut AdmittedDispatchId,
    ) -> Result<AdmitCheckResult, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.try_admit(phase, claim, admitting, admitted).await,
            Self::Postgres(postgres) => postgres.try_admit(phase, claim, admitting, admitted).await,
        }
    }

    /// Raises watermarks and admits the claim even if its token is stale.
    pub(crate) async fn admit_unchecked(
        &self,
        claim: &PresentedDispatch,
        admitted: &mut AdmittedDispatchId,
    ) -> Result<BootInstant, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.admit_unchecked(claim, admitted).await,
            Self::Postgres(postgres) => postgres.admit_unchecked(claim, admitted).await,
        }
    }

    /// Records in the background that the dispatch is over, or in doubt from now on.
    pub(crate) fn end_dispatch(
        &self,
        claim: &PresentedDispatch,
        admitted: AdmittedDispatchId,
        ended: DispatchEnd,
        sent: Option<DispatchSendRecord>,
    ) {
        match self {
            Self::Local(local) => local.end_dispatch(claim, admitted, ended, sent),
            Self::Postgres(postgres) => postgres.end_dispatch(&admitted, ended, sent),
        }
    }

    /// Ends the dispatch, and records the outcome of its operation. The outcome is durable when this returns.
    pub(crate) async fn end_dispatch_with_outcome(
        &self,
        claim: &PresentedDispatch,
        admitted: AdmittedDispatchId,
        lock: &mut Option<OperationReservationHandle>,
        writing: JournalUpdate,
    ) -> Result<(), DispatchRefusedError> {
        match self {
            Self::Local(local) => {
                local.end_dispatch(claim, admitted, DispatchEnd::Known, None);
                local.update_entry(lock.as_ref(), writing).await
            }
            Self::Postgres(postgres) => postgres.end_dispatch_with_outcome(&admitted, lock, writing).await,
        }
    }

    /// Ends a doubt, because no execution under this token is running any more. False if there was no such
    /// doubt.
    pub(crate) async fn resolve_doubt(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Result<bool, DispatchRefusedError> {
        match self {
            Self::Local(local) => Ok(local.resolve_doubt(keys, token)),
            Self::Postgres(postgres) => postgres.resolve_doubt(keys, token).await,
        }
    }

    pub(crate) async fn key_view(
        &self,
        key: &ResourceKey,
    ) -> Result<Option<GuardKeyView>, DispatchRefusedError> {
        match self {
            Self::Local(local) => Ok(local.key_view(key)),
            Self::Postgres(postgres) => postgres.key_view(key).await,
        }
    }

    /// Every execution in doubt.
    pub(crate) async fn doubts(&self) -> Result<Vec<InDoubtExecution>, DispatchRefusedError> {
        match self {
            Self::Local(local) => Ok(local.doubts()),
            Self::Postgres(postgres) => postgres.doubts().await,
        }
    }

    pub(crate) async fn progress(&self) -> Result<TokenEpochBounds, DispatchRefusedError> {
        match self {
            Self::Local(local) => Ok(local.progress()),
            Self::Postgres(postgres) => postgres.progress().await,
        }
    }
}

/// Calls about operations.
impl GuardBackend {
    /// Tries to take the lock of an operation.
    pub(crate) async fn reserve(
        &self,
        id: OperationId,
    ) -> Result<ReserveOperationOutcome, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.reserve(id),
            Self::Postgres(postgres) => postgres.reserve(id).await,
        }
    }

    /// Releases the lock of an operation.
    pub(crate) fn release(&self, lock: OperationReservationHandle) {
        match (self, lock) {
            (Self::Local(local), OperationReservationHandle::Local(id)) => local.release(&id),
            // A lock in the database is released when its handle is dropped.
            (_, lock) => drop(lock),
        }
    }

    /// Changes the entry of an operation, under its lock. Durable when this returns.
    pub(crate) async fn update_entry(
        &self,
        lock: &OperationReservationHandle,
        writing: JournalUpdate,
    ) -> Result<(), DispatchRefusedError> {
        match self {
            Self::Local(local) => local.update_entry(Some(lock), writing).await,
            Self::Postgres(postgres) => postgres.update_entry(lock, writing).await,
        }
    }

    pub(crate) async fn entry(
        &self,
        id: &OperationId,
    ) -> Result<Option<OperationJournalEntry>, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.entry(id),
            Self::Postgres(postgres) => postgres.entry(id).await,
        }
    }

    pub(crate) async fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.find_by_reference(reference),
            Self::Postgres(postgres) => postgres.find_by_reference(reference).await,
        }
    }

    /// Whether an execution of the operation may still run, or begin.
    pub(crate) async fn may_still_run(
        &self,
        entry: &OperationJournalEntry,
    ) -> Result<bool, DispatchRefusedError> {
        match self {
            Self::Local(local) => Ok(local.may_still_run(entry)),
            Self::Postgres(postgres) => postgres.may_still_run(entry).await,
        }
    }

    /// Operations with an unknown outcome that are not reserved.
    pub(crate) async fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.unresolved_operations(most),
            Self::Postgres(postgres) => postgres.unresolved_operations(most).await,
        }
    }

    /// Forgets a finished operation that is not reserved. False if there was none.
    pub(crate) async fn forget(&self, id: OperationId) -> Result<bool, DispatchRefusedError> {
        match self {
            Self::Local(local) => local.forget(id).await,
            Self::Postgres(postgres) => postgres.forget(&id).await,
        }
    }

    /// The size of all entries of the journal.
    pub(crate) fn journal(&self) -> JournalSize {
        match self {
            Self::Local(local) => local.journal(),
            Self::Postgres(postgres) => postgres.journal(),
        }
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn store_time_seconds(&self) -> u64 {
        match self {
            Self::Local(local) => local.store_time_seconds(),
            Self::Postgres(postgres) => postgres.store_time_seconds(),
        }
    }
}

/// The lifecycle of the backend.
impl GuardBackend {
    /// Does the background work for as long as it is polled.
    pub(crate) async fn run_background(&self) {
        match self {
            Self::Local(local) => local.run_background().await,
            Self::Postgres(postgres) => postgres.run_background().await,
        }
    }

    /// The targets that have to be probed, because a dispatch to them is in doubt.
    pub(crate) fn targets_to_probe(&self) -> Vec<DispatchTarget> {
        match self {
            Self::Local(local) => local.targets_to_probe(),
            Self::Postgres(postgres) => postgres.targets_to_probe(),
        }
    }

    /// The target to which this guard has sent the dispatch of this token. `None` if the dispatch is not in
    /// doubt, or if the target is not known.
    pub(crate) fn dispatch_target(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Option<DispatchTarget> {
        match self {
            Self::Local(local) => local.dispatch_target(keys, token),
            Self::Postgres(postgres) => postgres.dispatch_target(keys, token),
        }
    }

    /// Records that a probe of the target was answered. True if the previous probe was not answered.
    pub(crate) fn record_alive(&self, target: &DispatchTarget, answer: LivenessProbeAnswer) -> bool {
        match self {
            Self::Local(local) => local.record_alive(target, answer),
            Self::Postgres(postgres) => postgres.record_alive(target, answer),
        }
    }

    /// Records that a probe of the target was not answered. True if the previous probe was answered, or if there
    /// was none.
    pub(crate) fn record_silent(&self, target: &DispatchTarget) -> bool {
        match self {
            Self::Local(local) => local.record_silent(target),
            Self::Postgres(postgres) => postgres.record_silent(target),
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn update_gauges(&self) {
        match self {
            Self::Local(local) => local.update_gauges(),
            Self::Postgres(postgres) => postgres.update_gauges(),
        }
    }

    /// The store of a guard that shares it with no other; `None` if the store is shared.
    pub(crate) fn own_store(&self) -> Option<&dyn GuardStore> {
        match self {
            Self::Local(local) => Some(local.store()),
            Self::Postgres(_) => None,
        }
    }

    /// The lease of a guard that shares its store. Bytes may be sent upstream only while the lease is valid.
    pub(crate) fn membership(&self) -> Option<GuardMembershipLease> {
        match self {
            Self::Local(_) => None,
            Self::Postgres(postgres) => Some(postgres.membership()),
        }
    }

    /// Whether the backend can decide now, as far as is known.
    pub(crate) fn is_available(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Postgres(postgres) => postgres.is_membership_valid(),
        }
    }

    pub(crate) async fn ping_store_thread(&self) {
        match self {
            Self::Local(local) => local.ping_store_thread().await,
            Self::Postgres(postgres) => postgres.ping_store_thread().await,
        }
    }

    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        match self {
            Self::Local(local) => local.quarantine(),
            Self::Postgres(postgres) => postgres.quarantine(),
        }
    }

    /// Waits until nothing can be stored any more, and returns the cause.
    pub(crate) async fn wait_for_failure(&self) -> CommitError {
        match self {
            Self::Local(local) => local.wait_for_failure().await,
            Self::Postgres(postgres) => postgres.wait_for_failure().await,
        }
    }

    /// Ends the use of the store in such a way that the next start needs no quarantine. Call this after the last
    /// exchange.
    pub(crate) async fn shut_down_cleanly(&self) -> Result<(), DispatchRefusedError> {
        match self {
            Self::Local(local) => local.shut_down_cleanly().await,
            Self::Postgres(postgres) => postgres.shut_down_cleanly().await,
        }
    }

    #[cfg(test)]
    pub(crate) fn local(&self) -> &LocalGuardBackend {
        match self {
            Self::Local(local) => local,
            Self::Postgres(_) => panic!("it shares its store"),
        }
    }
}
