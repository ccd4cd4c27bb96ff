//! What an attempt for a lock comes to.

use std::{future::Future, sync::Arc};

use crate::{reach::Way, session::evidence::Evidence};

/// The lock, granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// E of the token.
    pub epoch: u64,
    /// S of the token; 0 for a set of keys.
    pub sequence: u32,
    pub evidence: Arc<Evidence>,
    /// Paths of the lock nodes, one per key.
    pub nodes: Arc<[String]>,
    /// Another one was before us.
    pub contended: bool,
}

/// Why there is no lock. Nothing was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    #[error("another one holds it")]
    Locked,
    /// The session ended, or our node was taken away: ask again.
    #[error("the place in the queue was lost")]
    Lost,
    /// Another gateway keeps it, and can be asked instead.
    #[error("gateway {} keeps it", .0.gateway)]
    Elsewhere(Way),
    /// Another gateway has sent the request here, and the key is not kept here.
    #[error("it is not kept here")]
    NotHolder,
    #[error("no more locks can be taken: {0}")]
    KeyLimit(&'static str),
    #[error("{0}")]
    Service(String),
}

/// How far an attempt came when it had to end.
#[derive(Debug)]
pub enum Stop {
    /// Nobody wants the lock any more.
    CallerGone,
    NotGranted(NotGranted),
}

impl From<NotGranted> for Stop {
    fn from(why: NotGranted) -> Self {
        Self::NotGranted(why)
    }
}

/// Who waits for an attempt.
pub trait Caller {
    fn is_gone(&self) -> bool;
    /// Returns when nobody wants the lock any more.
    fn gone(&mut self) -> impl Future<Output = ()>;
    /// Another holder is before us: callers that do not wait leave here.
    fn behind(&mut self) -> Result<(), Stop>;

    /// Somebody may be sent on to whoever holds, and has not been told the way. Asked once, answered once.
    fn asks_the_way(&mut self) -> bool {
        false
    }

    /// The answer; `None` where there is nobody to be sent on to.
    fn way(&mut self, _: Option<Way>) -> Result<(), Stop> {
        Ok(())
    }

    /// Returns when somebody came or went.
    fn stirred(&mut self) -> impl Future<Output = ()> {
        self.gone()
    }
}

/// E of a token. A zxid beyond 2^63 reads as negative: no token rather than a wrong one.
pub fn epoch(base: u64, czxid: i64) -> Result<u64, NotGranted> {
    u64::try_from(czxid)
        .ok()
        .filter(|czxid| *czxid > 0)
        .and_then(|czxid| base.checked_add(czxid))
        .filter(|epoch| i64::try_from(*epoch).is_ok())
        .ok_or_else(|| NotGranted::Service(format!("czxid {czxid} gives no token")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_czxid_that_gives_no_token_fails_closed() {
        assert_eq!(epoch(5, 7), Ok(12));
        for (base, czxid) in [(0, -1), (0, 0), (i64::MAX as u64, 1), (u64::MAX, 1)] {
            assert!(epoch(base, czxid).is_err(), "{base} {czxid}");
        }
    }
}
