//! What an attempt for a lock comes to.

use std::{future::Future, sync::Arc};

use fencegate_policies::permits::Permit;
use fencegate_process::clock::Boot;

use crate::{not_granted::NotGranted, reach::Way, session::evidence::Evidence};

/// The lock, granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// E of the token.
    pub epoch: u64,
    /// S of the token; 0 for a set of keys, and for what is made out of the line.
    pub sequence: u32,
    /// Which of several permits of its key it is.
    pub permit: Option<Permit>,
    pub evidence: Arc<Evidence>,
    /// Paths of the lock nodes, one per key.
    pub nodes: Arc<[String]>,
    /// Another one was before us.
    pub contended: bool,
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

    /// So many nodes stand before ours.
    fn stands_behind(&mut self, _nodes: usize) {}

    /// Nobody else holds, and it is not granted before then. It goes on without those who do not wait.
    fn rests(&mut self, _until: Boot) {}

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
