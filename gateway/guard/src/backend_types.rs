//! The questions to an arbiter about a dispatch, and its answers.

use fencegate_policies::operation::OperationId;
use fencegate_process::clock::BootInstant;

use crate::{
    admission::DispatchId,
    dispatch_target::DispatchTarget,
    operation::JournalEntry,
    postgres::{ChangeFuture, DispatchName, InFlightDispatch, PostgresOperationLock},
};

/// Which look at the keys of a dispatch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmitPhase {
    /// Its token is compared with the marks, and announced.
    First,
    /// Its token was announced before, and it has waited since.
    Again,
}

/// The operation of the dispatch, which is recorded in the step that lets the dispatch in.
pub(crate) struct PendingOperation<'r> {
    pub(crate) lock: &'r OperationLock,
    pub(crate) entry: Box<JournalEntry>,
}

/// The right to decide over an operation. The arbiter that gave it takes it back.
pub(crate) enum OperationLock {
    Local(OperationId),
    Postgres(PostgresOperationLock),
}

/// How a dispatch went out that is in doubt.
#[derive(Debug)]
pub(crate) struct SendRecord {
    /// Where it was sent, if that is known.
    pub(crate) place: Option<DispatchTarget>,
    /// The last byte, or a later moment.
    pub(crate) last: BootInstant,
}

/// The result of one look at the keys, which is durable.
pub(crate) struct AdmitCheck {
    pub(crate) outcome: AdmitOutcome,
    /// Whether the token is the first of its tenure on one of the keys.
    pub(crate) raised: bool,
}

/// Whether a dispatch can go its way.
pub(crate) enum AdmitOutcome {
    /// The dispatch counts as in flight. Its permission to send began at `since`.
    Admitted { since: BootInstant },
    /// Another dispatch is in the way. Look again when told, or when a doubt may be over.
    Blocked { told: ChangeFuture, doubt: Option<BootInstant> },
}

/// The arbiter's name for a dispatch that it has let in.
#[derive(Debug)]
pub(crate) enum AdmittedId {
    NotAdmitted,
    Local(DispatchId),
    /// It may be in flight under this name; the answer is not here yet.
    Requested(DispatchName),
    Postgres(InFlightDispatch),
}

/// The answer to a request for the right to decide over an operation.
pub(crate) enum ReserveOutcome {
    /// The right is ours. With the entry of the operation.
    Acquired(OperationLock, Option<Box<JournalEntry>>),
    /// Another request has it. Ask again when told.
    Held(ChangeFuture),
}

/// How far the store has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreProgress {
    /// A key without a mark admits no token up to here.
    pub(crate) floor: u64,
    /// The largest epoch that was ever announced.
    pub(crate) highest: u64,
    /// The database of the store, if several guards may share it.
    pub(crate) database: Option<String>,
}
