//! The arbiter of a guard, which decides and remembers. All calls of a guard to its arbiter are in here.

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::Token};
use fencegate_process::clock::Boot;

use crate::{
    alone::Alone,
    arbitration::{Admitted, Admitting, Looked, Reach, Reserving, Right, Sent, Turn},
    operation::{Entry, Writing},
    place::Place,
    postgres::Lease,
    refused::Refused,
    register::{Answer, Claim, Ended, InDoubt, Quarantined, Seen},
    shared::Shared,
    store::{JournalSize, NotDurable, Store},
};

/// Who decides for a guard, and keeps what it knows.
pub(crate) enum Arbiter {
    /// The guard itself, in memory and a file.
    Alone(Box<Alone>),
    /// A database, for several guards.
    Shared(Box<Shared>),
}

impl Arbiter {
    /// Compares the claim with the marks, announces it, and lets it in if nothing is in the way. All that this writes
    /// is durable when it returns.
    ///
    /// `admitted` is set before the dispatch can count as in flight, so a caller that drops this future can end the
    /// dispatch.
    pub(crate) async fn look(
        &self,
        turn: Turn,
        claim: &Claim,
        admitting: Option<Admitting<'_>>,
        admitted: &mut Admitted,
    ) -> Result<Looked, Refused> {
        match self {
            Self::Alone(alone) => alone.look(turn, claim, admitting, admitted).await,
            Self::Shared(shared) => shared.look(turn, claim, admitting, admitted).await,
        }
    }

    /// Raises marks and lets the claim in even if its token is stale.
    pub(crate) async fn let_pass(&self, claim: &Claim, admitted: &mut Admitted) -> Result<Boot, Refused> {
        match self {
            Self::Alone(alone) => alone.let_pass(claim, admitted).await,
            Self::Shared(shared) => shared.let_pass(claim, admitted).await,
        }
    }

    /// The dispatch is over, or in doubt from now on. This is told in the background.
    pub(crate) fn end(&self, claim: &Claim, admitted: Admitted, ended: Ended, sent: Option<Sent>) {
        match self {
            Self::Alone(alone) => alone.end(claim, admitted, ended, sent),
            Self::Shared(shared) => shared.end(&admitted, ended, sent),
        }
    }

    /// The dispatch is over, and its operation has this outcome. Both are durable when this returns.
    pub(crate) async fn conclude(
        &self,
        claim: &Claim,
        admitted: Admitted,
        right: &mut Option<Right>,
        writing: Writing,
    ) -> Result<(), Refused> {
        match self {
            Self::Alone(alone) => {
                alone.end(claim, admitted, Ended::Known, None);
                alone.record(right.as_ref(), writing).await
            }
            Self::Shared(shared) => shared.conclude(&admitted, right, writing).await,
        }
    }

    /// Ends a doubt: no execution under this token goes on. False if there was no such doubt.
    pub(crate) async fn resolve(&self, keys: &[ResourceKey], token: Token) -> Result<bool, Refused> {
        match self {
            Self::Alone(alone) => Ok(alone.resolve(keys, token)),
            Self::Shared(shared) => shared.resolve(keys, token).await,
        }
    }

    pub(crate) async fn seen(&self, key: &ResourceKey) -> Result<Option<Seen>, Refused> {
        match self {
            Self::Alone(alone) => Ok(alone.seen(key)),
            Self::Shared(shared) => shared.seen(key).await,
        }
    }

    /// Every execution in doubt.
    pub(crate) async fn doubts(&self) -> Result<Vec<InDoubt>, Refused> {
        match self {
            Self::Alone(alone) => Ok(alone.doubts()),
            Self::Shared(shared) => shared.doubts().await,
        }
    }

    pub(crate) async fn reach(&self) -> Result<Reach, Refused> {
        match self {
            Self::Alone(alone) => Ok(alone.reach()),
            Self::Shared(shared) => shared.reach().await,
        }
    }
}

/// Calls about operations.
impl Arbiter {
    /// Asks for the right to decide over an operation.
    pub(crate) async fn reserve(&self, id: OperationId) -> Result<Reserving, Refused> {
        match self {
            Self::Alone(alone) => alone.reserve(id),
            Self::Shared(shared) => shared.reserve(id).await,
        }
    }

    /// Takes it back.
    pub(crate) fn take_back(&self, right: Right) {
        match (self, right) {
            (Self::Alone(alone), Right::Alone(id)) => alone.let_go(&id),
            // A right from the database gives itself back when it is dropped.
            (_, right) => drop(right),
        }
    }

    /// Changes the entry of an operation, under its right. Durable when this returns.
    pub(crate) async fn record(&self, right: &Right, writing: Writing) -> Result<(), Refused> {
        match self {
            Self::Alone(alone) => alone.record(Some(right), writing).await,
            Self::Shared(shared) => shared.record(right, writing).await,
        }
    }

    pub(crate) async fn entry(&self, id: &OperationId) -> Result<Option<Entry>, Refused> {
        match self {
            Self::Alone(alone) => alone.entry(id),
            Self::Shared(shared) => shared.entry(id).await,
        }
    }

    pub(crate) async fn by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, Entry)>, Refused> {
        match self {
            Self::Alone(alone) => alone.by_reference(reference),
            Self::Shared(shared) => shared.by_reference(reference).await,
        }
    }

    /// Whether an execution of the operation may still run, or begin.
    pub(crate) async fn may_still_run(&self, entry: &Entry) -> Result<bool, Refused> {
        match self {
            Self::Alone(alone) => Ok(alone.may_still_run(entry)),
            Self::Shared(shared) => shared.may_still_run(entry).await,
        }
    }

    /// Operations with an unknown outcome that are not reserved.
    pub(crate) async fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, Refused> {
        match self {
            Self::Alone(alone) => alone.unfinished(most),
            Self::Shared(shared) => shared.unfinished(most).await,
        }
    }

    /// Forgets a finished operation that is not reserved. False if there was none.
    pub(crate) async fn forget(&self, id: OperationId) -> Result<bool, Refused> {
        match self {
            Self::Alone(alone) => alone.forget(id).await,
            Self::Shared(shared) => shared.forget(&id).await,
        }
    }

    /// The size of all entries.
    pub(crate) fn journal(&self) -> JournalSize {
        match self {
            Self::Alone(alone) => alone.journal(),
            Self::Shared(shared) => shared.journal(),
        }
    }

    /// Now, in seconds of the store's time.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::Alone(alone) => alone.time(),
            Self::Shared(shared) => shared.time(),
        }
    }
}

/// The arbiter's own life.
impl Arbiter {
    /// Does the background work for as long as it is polled.
    pub(crate) async fn tend(&self) {
        match self {
            Self::Alone(alone) => alone.tend().await,
            Self::Shared(shared) => shared.tend().await,
        }
    }

    /// The places that have to be asked whether they run.
    pub(crate) fn to_ask(&self) -> Vec<Place> {
        match self {
            Self::Alone(alone) => alone.to_ask(),
            Self::Shared(shared) => shared.to_ask(),
        }
    }

    /// Where this guard has sent the dispatch of this token.
    pub(crate) fn place(&self, keys: &[ResourceKey], token: Token) -> Option<Place> {
        match self {
            Self::Alone(alone) => alone.place(keys, token),
            Self::Shared(shared) => shared.place(keys, token),
        }
    }

    /// True if the question before this one was not answered.
    pub(crate) fn seen_running(&self, place: &Place, answer: Answer) -> bool {
        match self {
            Self::Alone(alone) => alone.seen_running(place, answer),
            Self::Shared(shared) => shared.seen_running(place, answer),
        }
    }

    /// True if the question before this one was answered, or there was none.
    pub(crate) fn not_seen(&self, place: &Place) -> bool {
        match self {
            Self::Alone(alone) => alone.not_seen(place),
            Self::Shared(shared) => shared.not_seen(place),
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn count(&self) {
        match self {
            Self::Alone(alone) => alone.count(),
            Self::Shared(shared) => shared.count(),
        }
    }

    /// The store, if it is the guard's own.
    pub(crate) fn own_store(&self) -> Option<&dyn Store> {
        match self {
            Self::Alone(alone) => Some(alone.store()),
            Self::Shared(_) => None,
        }
    }

    /// The lease of a guard that shares its store. Bytes may leave only while it holds.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match self {
            Self::Alone(_) => None,
            Self::Shared(shared) => Some(shared.lease()),
        }
    }

    /// Whether it can decide now, as far as is known.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::Shared(shared) => shared.is_there(),
        }
    }

    pub(crate) async fn store_turned(&self) {
        match self {
            Self::Alone(alone) => alone.store_turned().await,
            Self::Shared(shared) => shared.store_turned().await,
        }
    }

    pub(crate) fn quarantine(&self) -> Option<Quarantined> {
        match self {
            Self::Alone(alone) => alone.quarantine(),
            Self::Shared(shared) => shared.quarantine(),
        }
    }

    /// Returns when nothing can be remembered any more.
    pub(crate) async fn failed(&self) -> NotDurable {
        match self {
            Self::Alone(alone) => alone.failed().await,
            Self::Shared(shared) => shared.failed().await,
        }
    }

    /// Call this after the last exchange.
    pub(crate) async fn leave(&self) -> Result<(), Refused> {
        match self {
            Self::Alone(alone) => alone.leave().await,
            Self::Shared(shared) => shared.leave().await,
        }
    }

    #[cfg(test)]
    pub(crate) fn alone(&self) -> &Alone {
        match self {
            Self::Alone(alone) => alone,
            Self::Shared(_) => panic!("it shares its store"),
        }
    }
}
