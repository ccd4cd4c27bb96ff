//! Our hold of a key, in the hands of one request: what its dispatches are stamped with and proven by.

use std::{cell::Cell, fmt, sync::Arc};

use fencegate_policies::{permits::Permit, plan::Mode, token::Token};
use fencegate_process::clock::Permission;

use super::chain::NotInside;
use crate::recipe::grant::Grant;
use crate::session::evidence::Evidence;

/// A granted lock. Dropping it ends this request's part in it. Whoever writes bytes under it therefore keeps it until
/// the last one, and says with [`Tenure::known`] that nothing of it goes on upstream; without that word nothing is
/// ever dispatched under the same lock node again.
#[derive(Debug)]
pub struct Tenure {
    grant: Grant,
    /// G of the first dispatch of ours, by which whoever counts them knows this request.
    first: u32,
    /// G of the last dispatch of ours, as whoever counts them gave it: the queue of the key, or the entry of the request.
    number: Cell<u32>,
    /// That one was given out.
    dispatched: Cell<bool>,
    known: Cell<bool>,
    kept: Kept,
    lock: Arc<dyn Shared>,
}

/// A lock that requests have one after the other, together, or one inside the other. Each of them is known by the G of its
/// first dispatch.
pub(super) trait Shared: fmt::Debug + Send + Sync {
    /// May a request that was started be sent, which nothing of has been before?
    fn may_begin(&self) -> bool {
        true
    }

    /// G for one more dispatch; `None` when the lock is closed or its numbers are used up.
    fn next_number(&self, first: u32) -> Option<u32>;

    /// Starts a request inside the dispatch that has called it; with how that holds the lock.
    fn call(self: Arc<Self>, from: Token, mode: Mode) -> Result<(Tenure, Mode), NotInside>;

    /// Nothing is started under it any more.
    fn retire(&self);

    /// A request is over; `known`: and so is everything that it started upstream.
    fn ended(self: Arc<Self>, first: u32, known: bool);
}

/// Whether the lock node is kept after the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// It is of this request only, and of what that calls.
    Never,
    /// Others may use it after us.
    ForOthers,
}

/// One sending of a request upstream under a tenure.
#[derive(Debug, Clone)]
pub struct Dispatch {
    pub token: Token,
    pub evidence: Arc<dyn Permission>,
}

impl Tenure {
    /// Of a lock node that is not kept after its request. `first`: G of the first dispatch, already counted.
    pub(super) fn of_node(grant: Grant, first: u32, lock: Arc<dyn Shared>) -> Self {
        Self::new(grant, first, Kept::Never, lock)
    }

    /// The same of one that others use after us.
    pub(super) fn of_shared(grant: Grant, first: u32, lock: Arc<dyn Shared>) -> Self {
        Self::new(grant, first, Kept::ForOthers, lock)
    }

    fn new(grant: Grant, first: u32, kept: Kept, lock: Arc<dyn Shared>) -> Self {
        let (dispatched, known) = (Cell::new(false), Cell::new(false));
        Self { grant, first, number: Cell::new(first), dispatched, known, kept, lock }
    }

    /// The next dispatch, with the next G. `None` when the tenure is closed or its numbers are used up.
    pub fn dispatch(&self) -> Option<Dispatch> {
        if !self.dispatched.get() && !self.lock.may_begin() {
            return None;
        }
        if self.dispatched.replace(true) {
            self.number.set(self.lock.next_number(self.first)?);
        }
        Some(Dispatch { token: self.token()?, evidence: self.grant.evidence.clone() })
    }

    /// Paths of the lock nodes.
    pub fn nodes(&self) -> Arc<[String]> {
        self.grant.nodes.clone()
    }

    /// Which of several permits of its key it is: guards and services know that by [`ResourceKey::of_permit`]. `None` where
    /// one request at a time has the key.
    ///
    /// [`ResourceKey::of_permit`]: fencegate_policies::key::ResourceKey::of_permit
    pub fn permit(&self) -> Option<Permit> {
        self.grant.permit
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

    /// What came of a dispatch is not known: nothing is started under the same lock node from now on, also while this one is
    /// kept.
    pub fn retire(&self) {
        self.lock.retire();
    }

    pub fn evidence(&self) -> &Evidence {
        &self.grant.evidence
    }

    pub(super) fn shared_evidence(&self) -> Arc<Evidence> {
        self.grant.evidence.clone()
    }

    /// The ZooKeeper session that the lock is of.
    pub fn session(&self) -> i64 {
        self.grant.evidence.session()
    }

    /// The same, for who writes under it.
    pub fn permission(&self) -> &dyn Permission {
        &*self.grant.evidence
    }

    /// Another request of this gateway had it before us.
    pub fn follows_another(&self) -> bool {
        self.kept == Kept::ForOthers && self.number.get() > 1
    }

    /// Another holder was before us.
    pub fn was_contended(&self) -> bool {
        self.grant.contended
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let known = self.known.get() || !self.dispatched.get();
        self.lock.clone().ended(self.first, known);
    }
}
