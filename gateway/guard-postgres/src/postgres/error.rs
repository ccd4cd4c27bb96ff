//! Why the database gave no reply.

use super::membership::GuardMembershipLostError;

/// Nothing may be sent. A possible registration is ended in the background.
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
