//! The error of a request to the database.

use super::membership::GuardMembershipLostError;

/// The database gave no usable reply, so nothing may be sent. If it may have registered a dispatch, that
/// registration is ended in the background.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostgresError {
    #[error("the database cannot be queried: {0}")]
    Unreachable(String),
    #[error("the database did not answer in the time in which a dispatch may be sent")]
    Timeout,
    #[error("this guard has lost its place in the store: {0}")]
    Lost(GuardMembershipLostError),
    #[error("the database refused the statement: {0}")]
    Refused(String),
}
