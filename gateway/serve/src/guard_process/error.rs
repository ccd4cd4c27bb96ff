//! The errors of a guard that does not start, or did not end well.

use std::io;

use fencegate_config::jwks_fetcher::JwksUrlError;
use fencegate_config::store_config::PostgresConfigError;
use fencegate_guard::{join::JoinSharedStoreError, open::OpenGuardError};
use fencegate_guard_postgres::postgres::UnusableDatabaseError;
use fencegate_guard_store::store::{CommitError, StoreError};
use fencegate_ticket::KeyFileError;

use crate::error::ProcessError;

/// The reason for which a guard does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum GuardProcessError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    OpenState(#[from] OpenGuardError),
    #[error(transparent)]
    StoreConfig(#[from] PostgresConfigError),
    #[error("FG0540: {0}")]
    UnusableStore(#[from] UnusableDatabaseError),
    #[error("a filter has no store: leave `--init` out")]
    Stateless,
    #[error("cannot join the store: {0}")]
    JoinStore(JoinSharedStoreError),
    #[error("cannot read the ticket keys")]
    TicketKeys(#[from] KeyFileError),
    #[error("cannot fetch the ticket keys")]
    Jwks(#[from] JwksUrlError),
    #[error("the store failed, and its content is unknown: {0}")]
    StoreFailed(#[from] CommitError),
    #[error("cannot start a thread or the async runtime")]
    Start(#[from] io::Error),
    #[error(
        "the state in memory could not be written to the store, so the next start is that after a crash: {0}"
    )]
    LeaveStore(String),
}

impl From<JoinSharedStoreError> for GuardProcessError {
    fn from(not: JoinSharedStoreError) -> Self {
        match not {
            JoinSharedStoreError::Store(unusable) => Self::UnusableStore(unusable),
            other => Self::JoinStore(other),
        }
    }
}
