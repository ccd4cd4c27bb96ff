//! Decides in a PostgreSQL database, so that several guards of one upstream are active together.
//!
//! Watermarks, dispatches in flight, doubts and the journal are rows. Each decision is one function call in the
//! database, which locks the rows of all its keys. Memory is never authoritative. In reading order:
//!
//! - [`PostgresConfig`]: where the database is, and its requirements
//! - [`PostgresStore`]: one guard in it: its instance, its [`GuardMembershipLease`], its requests
//! - [`PostgresAdmissionOutcome`]: the result of one check of the keys of a claim
//! - [`PostgresOperationLock`]: the right to decide over an operation, which is a row, too
//! - [`PostgresError`]: why the database gave no reply

mod admit_reply;
mod bootstrap;
mod config;
mod connect;
mod driver;
mod endpoint_watch;
mod error;
mod heartbeat;
mod import;
mod import_transaction;
mod instance;
mod journal;
mod membership;
mod migrate;
mod mutations;
mod name_registry;
mod notifiers;
mod operation_lock;
mod probed_dispatches;
mod request;
mod request_queue;
mod store_clock;
mod view;

pub use self::heartbeat::BEAT;
pub use self::{
    admit_reply::{ChangeFuture, DispatchName, InFlightDispatch, PostgresAdmissionOutcome},
    config::{PostgresConfig, SCHEMA, UnusableDatabaseError},
    error::PostgresError,
    import::{DbSchemaContent, ImportLock},
    import_transaction::{ImportHeader, ImportTransaction, ImportedKeyRow, ImportedOpenExecution},
    instance::{GuardTimeLimits, PostgresStore},
    membership::{GuardMembershipLease, GuardMembershipLostError, StoreQuarantine, StoreStatus, SweepStats},
    migrate::{FORMAT, ImportMarker},
    operation_lock::{JournalWriteOutcome, OperationLockReply, PostgresOperationLock},
};
