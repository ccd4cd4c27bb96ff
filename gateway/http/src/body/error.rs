//! The error of a body that broke.

use std::time::Duration;

/// The reason for which a body is not complete and never will be.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("no byte of the body arrived within {0:?}")]
    Stalled(Duration),
    #[error("the body did not arrive in full in time")]
    Overdue {
        /// True if the sender was too slow; false if this side took the body too slowly.
        awaited: bool,
    },
    #[error("the body ended before it was complete")]
    Abandoned,
}
