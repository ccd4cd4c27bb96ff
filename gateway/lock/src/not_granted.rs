//! Why there is no lock.

use std::time::Duration;

use crate::reach::Way;

/// Why there is no lock. Nothing was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    #[error("another one holds it")]
    Locked,
    /// Its last holder left without a word, and what that sent may go on for so long.
    #[error("what its last holder sent may go on for {0:?}")]
    Delayed(Duration),
    /// The session ended, or our node was taken away: ask again.
    #[error("the place in the queue was lost")]
    Lost,
    /// Another gateway keeps it, and can be asked instead.
    #[error("gateway {} keeps it", .0.gateway)]
    Elsewhere(Way),
    /// Another gateway has sent the request here, and the key is not kept here.
    #[error("it is not kept here")]
    NotHolder,
    /// Those who hold, or stand before us, ask for another number of permits, or we for one where they do not.
    #[error("others ask for another number of permits of it")]
    PermitsDiffer,
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    #[error("{0}")]
    Service(String),
}
