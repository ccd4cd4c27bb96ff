//! A lock that a client holds for longer than a request: what it asks for under it takes its turn, each with a larger G.
//!
//! The client's hold is the first part of the tenure, with G = 1, and never sends anything. Each request under it is a part of
//! its own, so the node stays until the client has given the lock back *and* all that it asked for is over.

use std::sync::{Arc, Mutex, PoisonError};

use fencegate_policies::{permits::Permit, plan::Mode, token::Token};
use fencegate_process::clock::{Boot, Permission as _};
use tokio::sync::Semaphore;

use super::{chain::NotInside, own_node::OwnNode, tenure::Tenure};
use crate::session::evidence::Evidence;

/// The lock of one lease. Dropping it gives it back, as [`LeasedLock::give_back`] does.
#[derive(Debug)]
pub struct LeasedLock {
    lock: Arc<OwnNode>,
    /// What the client holds; `None` once it was given back.
    held: Mutex<Option<Tenure>>,
    /// Whoever has it is next: first come, first served.
    turn: Semaphore,
    token: Token,
    permit: Option<Permit>,
    evidence: Arc<Evidence>,
    nodes: Arc<[String]>,
}

impl LeasedLock {
    pub(super) fn of(lock: Arc<OwnNode>, held: Tenure) -> Self {
        let token = held.first_token().expect("nothing was dispatched under it");
        let (evidence, nodes, permit) = (held.shared_evidence(), held.nodes(), held.permit());
        Self { lock, held: Mutex::new(Some(held)), turn: Semaphore::new(1), token, permit, evidence, nodes }
    }

    /// What the client holds: below the tokens of all that it asks for under it, and of one number with them.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Which of several permits of its key it is; see [`Tenure::permit`].
    pub fn permit(&self) -> Option<Permit> {
        self.permit
    }

    /// The ZooKeeper session that the lock nodes are of.
    pub fn session(&self) -> i64 {
        self.evidence.session()
    }

    /// Paths of the lock nodes.
    pub fn nodes(&self) -> Arc<[String]> {
        self.nodes.clone()
    }

    /// The session is proven, and nobody took a lock node away.
    pub fn holds(&self, now: Boot) -> bool {
        self.evidence.holds(now)
    }

    /// Until then nobody else can hold, whatever becomes of this process: as far as it is proven by now.
    pub fn proven_until(&self) -> Boot {
        self.evidence.deadline()
    }

    /// It never holds again: the session is over, or somebody took a lock node away.
    pub fn is_lost(&self) -> bool {
        self.evidence.is_revoked()
    }

    /// What came of something under it is not known, or somebody newer was there: nothing more is sent under it.
    pub fn is_retired(&self) -> bool {
        self.lock.is_retired()
    }

    /// Requests that are at work under it.
    pub fn at_work(&self) -> usize {
        self.lock.at_work()
    }

    /// The tenure of one request under it, and how it holds. An exclusive one waits for its turn.
    ///
    /// # Errors
    /// [`NotInside::Over`], [`NotInside::Unproven`], and [`NotInside::Upgrade`] where the lease only reads.
    ///
    /// # Cancellation
    /// Dropping the future gives up the turn.
    pub async fn enter(&self, mode: Mode) -> Result<(Tenure, Mode), NotInside> {
        let _turn = self.turn.acquire().await.expect("nobody closes it");
        loop {
            match self.lock.join(mode) {
                // Told also between the look and the wait: then it is remembered.
                Err(NotInside::NotInnermost) => self.lock.stirred.notified().await,
                done => return done,
            }
        }
    }

    /// Nothing more is started under it, nor sent for the first time; it is held all the same.
    pub fn close(&self) {
        self.lock.close();
    }

    /// The client is done with it. The nodes go when all that was asked for under it is over.
    pub fn give_back(&self) {
        self.close();
        // Outside the lock: others are told of the end.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}

#[cfg(test)]
mod tests;
