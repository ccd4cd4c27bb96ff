//! The arbiter of a guard, which decides and remembers. All calls of a guard to its arbiter are in here.

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::Token};
use fencegate_process::clock::BootInstant;

use crate::{
    alone::LocalBackend,
    arbitration::{
        AdmitCheck, AdmitPhase, AdmittedId, OperationLock, PendingOperation, ReserveOutcome, SendRecord,
        StoreProgress,
    },
    operation::{JournalEntry, JournalUpdate},
    place::DispatchTarget,
    postgres::GuardMembership,
    refused::AdmitError,
    register::{Claim, DispatchEnd, InDoubtExecution, KeyView, LivenessAnswer, QuarantineStatus},
    shared::PostgresBackend,
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
    pub(crate) async fn look(
        &self,
        turn: AdmitPhase,
        claim: &Claim,
        admitting: Option<PendingOperation<'_>>,
        admitted: &mut AdmittedId,
    ) -> Result<AdmitCheck, AdmitError> {
        match self {
            Self::Local(alone) => alone.look(turn, claim, admitting, admitted).await,
            Self::Postgres(shared) => shared.look(turn, claim, admitting, admitted).await,
        }
    }

    /// Raises marks and lets the claim in even if its token is stale.
    pub(crate) async fn let_pass(
        &self,
        claim: &Claim,
        admitted: &mut AdmittedId,
    ) -> Result<BootInstant, AdmitError> {
        match self {
            Self::Local(alone) => alone.let_pass(claim, admitted).await,
            Self::Postgres(shared) => shared.let_pass(claim, admitted).await,
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

    pub(crate) async fn seen(&self, key: &ResourceKey) -> Result<Option<KeyView>, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.seen(key)),
            Self::Postgres(shared) => shared.seen(key).await,
        }
    }

    /// Every execution in doubt.
    pub(crate) async fn doubts(&self) -> Result<Vec<InDoubtExecution>, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.doubts()),
            Self::Postgres(shared) => shared.doubts().await,
        }
    }

    pub(crate) async fn reach(&self) -> Result<StoreProgress, AdmitError> {
        match self {
            Self::Local(alone) => Ok(alone.reach()),
            Self::Postgres(shared) => shared.reach().await,
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
    pub(crate) fn take_back(&self, right: OperationLock) {
        match (self, right) {
            (Self::Local(alone), OperationLock::Local(id)) => alone.let_go(&id),
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

    pub(crate) async fn by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, JournalEntry)>, AdmitError> {
        match self {
            Self::Local(alone) => alone.by_reference(reference),
            Self::Postgres(shared) => shared.by_reference(reference).await,
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
    pub(crate) async fn tend(&self) {
        match self {
            Self::Local(alone) => alone.tend().await,
            Self::Postgres(shared) => shared.tend().await,
        }
    }

    /// The places that have to be asked whether they run.
    pub(crate) fn to_ask(&self) -> Vec<DispatchTarget> {
        match self {
            Self::Local(alone) => alone.to_ask(),
            Self::Postgres(shared) => shared.to_ask(),
        }
    }

    /// Where this guard has sent the dispatch of this token.
    pub(crate) fn place(&self, keys: &[ResourceKey], token: Token) -> Option<DispatchTarget> {
        match self {
            Self::Local(alone) => alone.place(keys, token),
            Self::Postgres(shared) => shared.place(keys, token),
        }
    }

    /// True if the question before this one was not answered.
    pub(crate) fn seen_running(&self, place: &DispatchTarget, answer: LivenessAnswer) -> bool {
        match self {
            Self::Local(alone) => alone.seen_running(place, answer),
            Self::Postgres(shared) => shared.seen_running(place, answer),
        }
    }

    /// True if the question before this one was answered, or there was none.
    pub(crate) fn not_seen(&self, place: &DispatchTarget) -> bool {
        match self {
            Self::Local(alone) => alone.not_seen(place),
            Self::Postgres(shared) => shared.not_seen(place),
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn count(&self) {
        match self {
            Self::Local(alone) => alone.count(),
            Self::Postgres(shared) => shared.count(),
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
    pub(crate) fn lease(&self) -> Option<GuardMembership> {
        match self {
            Self::Local(_) => None,
            Self::Postgres(shared) => Some(shared.lease()),
        }
    }

    /// Whether it can decide now, as far as is known.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Postgres(shared) => shared.is_there(),
        }
    }

    pub(crate) async fn store_turned(&self) {
        match self {
            Self::Local(alone) => alone.store_turned().await,
            Self::Postgres(shared) => shared.store_turned().await,
        }
    }

    pub(crate) fn quarantine(&self) -> Option<QuarantineStatus> {
        match self {
            Self::Local(alone) => alone.quarantine(),
            Self::Postgres(shared) => shared.quarantine(),
        }
    }

    /// Returns when nothing can be remembered any more.
    pub(crate) async fn failed(&self) -> CommitError {
        match self {
            Self::Local(alone) => alone.failed().await,
            Self::Postgres(shared) => shared.failed().await,
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
    pub(crate) fn alone(&self) -> &LocalBackend {
        match self {
            Self::Local(alone) => alone,
            Self::Postgres(_) => panic!("it shares its store"),
        }
    }
}
