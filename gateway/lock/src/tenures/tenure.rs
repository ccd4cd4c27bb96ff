//! Our hold of a key, in the hands of one request: what its dispatches are stamped with and proven by.

use std::{cell::Cell, fmt, sync::Arc};

use fencegate_policies::token::Token;
use fencegate_process::clock::Permission;
use tokio::sync::oneshot;

use super::roll::{Enrolled, FIRST};
use crate::recipe::grant::Grant;
use crate::session::evidence::Evidence;

/// A granted lock. Dropping it ends this request's part in it. Whoever writes bytes under it therefore keeps it until
/// the last one, and says with [`Tenure::known`] that nothing of it goes on upstream; without that word nothing is
/// ever dispatched under the same lock node again.
#[derive(Debug)]
pub struct Tenure {
    grant: Grant,
    /// G of the last dispatch of ours, as whoever counts them gave it: the queue of the key, or the entry of the request.
    number: Cell<u32>,
    /// That one was given out.
    dispatched: Cell<bool>,
    known: Cell<bool>,
    end: End,
}

/// A lock that requests have one after the other, or together.
pub(super) trait Shared: fmt::Debug + Send + Sync {
    /// G for one more dispatch; `None` when the lock is closed or its numbers are used up.
    fn next_number(&self) -> Option<u32>;

    /// A request is over; `known`: and so is everything that it started upstream.
    fn ended(self: Arc<Self>, known: bool);
}

#[derive(Debug)]
enum End {
    /// A node for this request only: its task removes it when this is dropped.
    Node { over: Option<oneshot::Sender<bool>>, enrolled: Enrolled },
    /// A cached tenure that others may use after us.
    Shared(Arc<dyn Shared>),
}

/// One sending of a request upstream under a tenure.
#[derive(Debug, Clone)]
pub struct Dispatch {
    pub token: Token,
    pub evidence: Arc<dyn Permission>,
}

impl Tenure {
    pub(super) fn of_node(grant: Grant, over: oneshot::Sender<bool>, enrolled: Enrolled) -> Self {
        Self::new(grant, FIRST, End::Node { over: Some(over), enrolled })
    }

    /// `number`: G of the first dispatch, already counted.
    pub(super) fn of_shared(grant: Grant, number: u32, lock: Arc<dyn Shared>) -> Self {
        Self::new(grant, number, End::Shared(lock))
    }

    fn new(grant: Grant, number: u32, end: End) -> Self {
        Self { grant, number: Cell::new(number), dispatched: Cell::new(false), known: Cell::new(false), end }
    }

    /// The next dispatch, with the next G. `None` when the tenure is closed or its numbers are used up.
    pub fn dispatch(&self) -> Option<Dispatch> {
        if self.dispatched.replace(true) {
            let next = match &self.end {
                End::Node { enrolled, .. } => enrolled.next_number(),
                End::Shared(lock) => lock.next_number(),
            };
            self.number.set(next?);
        }
        Some(Dispatch { token: self.token()?, evidence: self.grant.evidence.clone() })
    }

    /// Paths of the lock nodes.
    pub fn nodes(&self) -> Arc<[String]> {
        self.grant.nodes.clone()
    }

    /// Of the first dispatch; `None` when there was one already.
    pub fn first_token(&self) -> Option<Token> {
        let first = !self.dispatched.get();
        first.then(|| self.token()).flatten()
    }

    fn token(&self) -> Option<Token> {
        Token::new(self.grant.epoch, self.grant.sequence, self.number.get()).ok()
    }

    /// Nothing that was dispatched goes on: it was answered in full, or never left.
    pub fn known(&self) {
        self.known.set(true);
    }

    pub fn evidence(&self) -> &Evidence {
        &self.grant.evidence
    }

    /// The same, for who writes under it.
    pub fn permission(&self) -> &dyn Permission {
        &*self.grant.evidence
    }

    /// Another request of this gateway had it before us.
    pub fn follows_another(&self) -> bool {
        matches!(self.end, End::Shared(_)) && self.number.get() > 1
    }

    /// Another holder was before us.
    pub fn was_contended(&self) -> bool {
        self.grant.contended
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let known = self.known.get() || !self.dispatched.get();
        match &mut self.end {
            End::Shared(lock) => lock.clone().ended(known),
            End::Node { over, .. } => {
                // Its task has gone only when the session's thread has.
                over.take().map(|over| over.send(known));
            }
        }
    }
}
