//! The arbiter of a guard, which decides and remembers. All calls of a guard to its arbiter are in here.

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::Token};
use fencegate_process::clock::BootInstant;

use crate::{
    admission::{Claim, DispatchEnd, InDoubtExecution, KeyView, LivenessAnswer, QuarantineStatus},
    backend_types::{
        AdmitCheck, AdmitPhase, AdmittedId, OperationLock, PendingOperation, ReserveOutcome, SendRecord,
        StoreProgress,
    },
    dispatch_target::DispatchTarget,
    error::AdmitError,
    local_backend::LocalBackend,
    operation::{JournalEntry, JournalUpdate},
    postgres::GuardMembership,
    postgres_backend::PostgresBackend,
    store::{CommitError, JournalSize, Store},
};

/// Who decides for a guard, and keeps what it knows.
pub(crate) enum Backend {
    /// The guard itself, in memory and a file.
    Local(Box<LocalBackend>),
    /// A database, for several guards.
    Postgres(Box<PostgresBackend>),
}

impl Backend {
    /// Compares the claim with the marks, announces it, and lets it in if nothing is in the way. All that this writes
    /// is durable when it returns.
    ///
    /// `admitted` is set before the dispatch can count as in flight, so a caller that drops this future can end the
    /// dispatch.
    pub(crate) async fn try_admit(
        &self,
        turn: AdmitPhase,
        claim: &Claim,
        admitting: Option<PendingOperation<'_>>,
        admitted: &mut AdmittedId,
    ) -> Result<AdmitCheck, AdmitError> {
        match self {
            Self::Local(alone) => alone.try_admit(turn, claim, admitting, admitted).await,
            Self::Postgres(shared) => shared.try_admit(turn, claim, admitting, admitted).await,
        }
    }

    /// Raises marks and lets the claim in even if its token is stale.
    pub(crate) async fn admit_unchecked(
        &self,
        claim: &Claim,
        admitted: &mut AdmittedId,
    ) -> Result<BootInstant, AdmitError> {
        match self {
            Self::Local(alone) => alone.admit_unchecked(claim, admitted).await,
            Self::Postgres(shared) => shared.admit_unchecked(claim, admitted).await,
        }
    }

    /// The dispatch is over, or in doubt from now on. This is told in the background.
    pub(crate) fn end(
        &self,
        claim: &Claim,
        admitted: AdmittedId,
        ended: DispatchEnd,
        sent: Option<SendRecord>,
    ) {
        match self {
            Self::Local(alone) => alone.end(claim, admitted, ended, sent),
            Self::Postgres(shared) => shared.end(&admitted, ended, sent),
        }
    }

    /// The dispatch is over, and its operation has this outcome. Both are durable when this returns.
    pub(crate) async fn conclude(
        &self,
        claim: &Claim,
        admitted: AdmittedId,
        right: &mut Option<OperationLock>,
        writing: JournalUpdate,
    ) -> Result<(), AdmitError> {
        match self {
            Self::Local(alone) => {
                alone.end(claim, admitted, DispatchEnd::Known, None);
                alone.record(right.as_ref(), writing).await
            }
            Self::Postgres(shared) => shared.conclude(&admitted, right, writing).await,
        }
    }

    /// Ends a doubt: no execution under this token goes on. False if there was no such doubt.
    pub(crate) async fn resolve(&self, keys: &[ResourceKey], token: Token) -> Result<bool, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.resolve(keys, token)),
            Self::Postgres(shared) => shared.resolve(keys, token).await,
        }
    }

    pub(crate) async fn key_view(&self, key: &ResourceKey) -> Result<Option<KeyView>, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.key_view(key)),
            Self::Postgres(shared) => shared.key_view(key).await,
        }
    }

    /// Every execution in doubt.
    pub(crate) async fn doubts(&self) -> Result<Vec<InDoubtExecution>, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.doubts()),
            Self::Postgres(shared) => shared.doubts().await,
        }
    }

    pub(crate) async fn progress(&self) -> Result<StoreProgress, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.progress()),
            Self::Postgres(shared) => shared.progress().await,
        }
    }
}

/// Calls about operations.
impl Backend {
    /// Asks for the right to decide over an operation.
    pub(crate) async fn reserve(&self, id: OperationId) -> Result<ReserveOutcome, AdmitError> {
        match self {
            Self::Local(alone) => alone.reserve(id),
            Self::Postgres(shared) => shared.reserve(id).await,
        }
    }

    /// Takes it back.
    pub(crate) fn release(&self, right: OperationLock) {
        match (self, right) {
            (Self::Local(alone), OperationLock::Local(id)) => alone.release(&id),
            // A right from the database gives itself back when it is dropped.
            (_, right) => drop(right),
        }
    }

    /// Changes the entry of an operation, under its right. Durable when this returns.
    pub(crate) async fn record(
        &self,
        right: &OperationLock,
        writing: JournalUpdate,
    ) -> Result<(), AdmitError> {
        match self {
            Self::Local(alone) => alone.record(Some(right), writing).await,
            Self::Postgres(shared) => shared.record(right, writing).await,
        }
    }

    pub(crate) async fn entry(&self, id: &OperationId) -> Result<Option<JournalEntry>, AdmitError> {
        match self {
            Self::Local(alone) => alone.entry(id),
            Self::Postgres(shared) => shared.entry(id).await,
        }
    }

    pub(crate) async fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, JournalEntry)>, AdmitError> {
        match self {
            Self::Local(alone) => alone.find_by_reference(reference),
            Self::Postgres(shared) => shared.find_by_reference(reference).await,
        }
    }

    /// Whether an execution of the operation may still run, or begin.
    pub(crate) async fn may_still_run(&self, entry: &JournalEntry) -> Result<bool, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.may_still_run(entry)),
            Self::Postgres(shared) => shared.may_still_run(entry).await,
        }
    }

    /// Operations with an unknown outcome that are not reserved.
    pub(crate) async fn unfinished(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, JournalEntry)>, AdmitError> {
        match self {
            Self::Local(alone) => alone.unfinished(most),
            Self::Postgres(shared) => shared.unfinished(most).await,
        }
    }

    /// Forgets a finished operation that is not reserved. False if there was none.
    pub(crate) async fn forget(&self, id: OperationId) -> Result<bool, AdmitError> {
        match self {
            Self::Local(alone) => alone.forget(id).await,
            Self::Postgres(shared) => shared.forget(&id).await,
        }
    }

    /// The size of all entries.
    pub(crate) fn journal(&self) -> JournalSize {
        match self {
            Self::Local(alone) => alone.journal(),
            Self::Postgres(shared) => shared.journal(),
        }
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::Local(alone) => alone.time(),
            Self::Postgres(shared) => shared.time(),
        }
    }
}

/// The arbiter's own life.
impl Backend {
    /// Does the background work for as long as it is polled.
    pub(crate) async fn run_background(&self) {
        match self {
            Self::Local(alone) => alone.run_background().await,
            Self::Postgres(shared) => shared.run_background().await,
        }
    }

    /// The places that have to be asked whether they run.
    pub(crate) fn targets_to_probe(&self) -> Vec<DispatchTarget> {
        match self {
            Self::Local(alone) => alone.targets_to_probe(),
            Self::Postgres(shared) => shared.targets_to_probe(),
        }
    }

    /// Where this guard has sent the dispatch of this token.
    pub(crate) fn dispatch_target(&self, keys: &[ResourceKey], token: Token) -> Option<DispatchTarget> {
        match self {
            Self::Local(alone) => alone.dispatch_target(keys, token),
            Self::Postgres(shared) => shared.dispatch_target(keys, token),
        }
    }

    /// True if the question before this one was not answered.
    pub(crate) fn record_alive(&self, place: &DispatchTarget, answer: LivenessAnswer) -> bool {
        match self {
            Self::Local(alone) => alone.record_alive(place, answer),
            Self::Postgres(shared) => shared.record_alive(place, answer),
        }
    }

    /// True if the question before this one was answered, or there was none.
    pub(crate) fn record_silent(&self, place: &DispatchTarget) -> bool {
        match self {
            Self::Local(alone) => alone.record_silent(place),
            Self::Postgres(shared) => shared.record_silent(place),
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn update_gauges(&self) {
        match self {
            Self::Local(alone) => alone.update_gauges(),
            Self::Postgres(shared) => shared.update_gauges(),
        }
    }

    /// The store, if it is the guard's own.
    pub(crate) fn own_store(&self) -> Option<&dyn Store> {
        match self {
            Self::Local(alone) => Some(alone.store()),
            Self::Postgres(_) => None,
        }
    }

    /// The lease of a guard that shares its store. Bytes may leave only while it holds.
    pub(crate) fn membership(&self) -> Option<GuardMembership> {
        match self {
            Self::Local(_) => None,
            Self::Postgres(shared) => Some(shared.membership()),
        }
    }

    /// Whether it can decide now, as far as is known.
    pub(crate) fn is_available(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Postgres(shared) => shared.is_available(),
        }
    }

    pub(crate) async fn wait_for_store(&self) {
        match self {
            Self::Local(alone) => alone.wait_for_store().await,
            Self::Postgres(shared) => shared.wait_for_store().await,
        }
    }

    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        match self {
            Self::Local(alone) => alone.quarantine(),
            Self::Postgres(shared) => shared.quarantine(),
        }
    }

    /// Returns when nothing can be remembered any more.
    pub(crate) async fn wait_for_failure(&self) -> CommitError {
        match self {
            Self::Local(alone) => alone.wait_for_failure().await,
            Self::Postgres(shared) => shared.wait_for_failure().await,
        }
    }

    /// Call this after the last exchange.
    pub(crate) async fn leave(&self) -> Result<(), AdmitError> {
        match self {
            Self::Local(alone) => alone.leave().await,
            Self::Postgres(shared) => shared.leave().await,
        }
    }

    #[cfg(test)]
    pub(crate) fn local(&self) -> &LocalBackend {
        match self {
            Self::Local(alone) => alone,
            Self::Postgres(_) => panic!("it shares its store"),
        }
    }
}
