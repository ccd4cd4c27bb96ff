//! Requests to a backend about a dispatch, and its replies.

use fencegate_guard_postgres::postgres::{
    ChangeFuture, DispatchName, InFlightDispatch, PostgresOperationLock,
};
use fencegate_guard_store::{
    admission::DispatchId, dispatch_target::DispatchTarget, operation::OperationJournalEntry,
};
use fencegate_policies::operation::OperationId;
use fencegate_process::clock::BootInstant;

/// Tells the first check of a dispatch's keys from the later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmitFirstOrRetry {
    /// The dispatch's token is compared with the watermarks, and announced.
    First,
    /// The dispatch's token was announced by the first check, and the dispatch has waited after it.
    Again,
}

/// The operation of the dispatch, which is recorded in the step that admits the dispatch.
pub(crate) struct OperationToAdmit<'r> {
    pub(crate) lock: &'r OperationReservationHandle,
    pub(crate) entry: Box<OperationJournalEntry>,
}

/// The right to decide over an operation. It is released at the backend that granted it.
pub(crate) enum OperationReservationHandle {
    Local(OperationId),
    Postgres(PostgresOperationLock),
}

/// The target and the time of a dispatch in doubt.
#[derive(Debug)]
pub(crate) struct DispatchSendRecord {
    /// The target to which the dispatch was sent, if known.
    pub(crate) place: Option<DispatchTarget>,
    /// The instant from which the execution counts its longest duration: that of the last byte, or a later one.
    pub(crate) last: BootInstant,
}

/// The result of one check of the keys, which is durable.
pub(crate) struct AdmitCheckResult {
    pub(crate) outcome: AdmittedOrBlocked,
    /// Whether the token is the first of its tenure on one of the keys.
    pub(crate) raised: bool,
}

/// Whether a dispatch may proceed.
pub(crate) enum AdmittedOrBlocked {
    /// The dispatch counts as in flight. Its permission to send began at `since`.
    Admitted { since: BootInstant },
    /// Another dispatch is in the way. Check again when notified, or when a doubt may be over.
    Blocked { told: ChangeFuture, doubt: Option<BootInstant> },
}

/// The backend's name for an admitted dispatch.
#[derive(Debug)]
pub(crate) enum AdmittedDispatchId {
    NotAdmitted,
    Local(DispatchId),
    /// The database was asked to admit the dispatch under this name. The reply has not come yet, so the dispatch
    /// may be in flight.
    Requested(DispatchName),
    Postgres(InFlightDispatch),
}

/// The reply to a request for an operation lock.
pub(crate) enum ReserveOperationOutcome {
    /// The lock is acquired. The second field is the operation's entry in the journal, if there is one.
    Acquired(OperationReservationHandle, Option<Box<OperationJournalEntry>>),
    /// Another request holds the lock. Try again when notified.
    Held(ChangeFuture),
}

/// The bounds of the epochs that the store has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenEpochBounds {
    /// A key without a watermark admits no token of this epoch or of an earlier one.
    pub(crate) floor: u64,
    /// The largest epoch that was ever announced.
    pub(crate) highest: u64,
    /// The database of the store, if several guards may share it.
    pub(crate) database: Option<String>,
}
