//! Requests to a backend about a dispatch, and its replies.

use fencegate_guard_postgres::postgres::{
    ChangeFuture, DispatchName, InFlightDispatch, PostgresOperationLock,
};
use fencegate_guard_store::{
    admission::DispatchId, dispatch_target::DispatchTarget, operation::OperationJournalEntry,
};
use fencegate_policies::operation::OperationId;
use fencegate_process::clock::BootInstant;

/// Which check of a dispatch's keys this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmitFirstOrRetry {
    /// Its token is compared with the watermarks, and announced.
    First,
    /// Its token was announced before, and it has waited since.
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

/// How a dispatch in doubt was sent.
#[derive(Debug)]
pub(crate) struct DispatchSendRecord {
    /// Where it was sent, if known.
    pub(crate) place: Option<DispatchTarget>,
    /// The instant of the last byte, or a later one.
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
    /// It may be in flight under this name; the reply has not come yet.
    Requested(DispatchName),
    Postgres(InFlightDispatch),
}

/// The reply to a request for an operation lock.
pub(crate) enum ReserveOperationOutcome {
    /// The lock is acquired. With the entry of the operation.
    Acquired(OperationReservationHandle, Option<Box<OperationJournalEntry>>),
    /// Another request holds the lock. Try again when notified.
    Held(ChangeFuture),
}

/// The progress of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenEpochBounds {
    /// A key without a watermark admits no token up to here.
    pub(crate) floor: u64,
    /// The largest epoch that was ever announced.
    pub(crate) highest: u64,
    /// The database of the store, if several guards may share it.
    pub(crate) database: Option<String>,
}
