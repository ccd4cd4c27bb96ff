//! The life of the lock node of one key, from its creation to its proven removal.
//!
//! The task that runs an attempt owns the node. Whoever asked for it may go away at any moment: the task notices at its
//! next step and removes the node. No request to ZooKeeper is abandoned half way, because it may still take effect.
//! Whatever happens, [`Attempt::clear`] has to be the last call.

mod node_creation;

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
};
use tokio::task::yield_now;

use super::{
    candidate::{LockNode, NodeAttempt, QueueLocation},
    delayed::{self, DelayedHandover, HolderNode, LAST_RECORDED},
    grant::{AttemptObserver, Grant, LockAttemptError},
    made::CreateTracker,
    rotate::ExhaustedParent,
};
use crate::not_granted::GrantError;
use crate::recipe::registered::RegistryGuard;
use crate::session::{evidence::LockValidity, link::ZkClient, live::ActiveSession};

/// One attempt.
pub struct Attempt<L: ZkClient> {
    pub candidate: NodeAttempt<L>,
    /// The names of its nodes.
    made: CreateTracker<String>,
    /// The data of its nodes.
    says: Box<[u8]>,
    /// Present where the parent of the key keeps a grant record.
    delayed: Option<DelayedHandover>,
    registered: RegistryGuard<L>,
}

impl<L: ZkClient> Attempt<L> {
    /// Enters the attempt in the session's registry, before any node is made. This may wait for room.
    pub async fn begin(
        live: &Rc<ActiveSession<L>>,
        key: &ResourceKey,
        site: &LockSite,
        mode: Mode,
    ) -> Result<Self, GrantError> {
        let at = QueueLocation::of(&live.paths, key, site)?;
        if live.registry.parents.has_ours(&at.parent) {
            // A client that was just answered may be back before the task of its last request has run, which removes
            // the node of that request. Let it run first: then we do not have to wait in line behind ourselves.
            yield_now().await;
        }
        Ok(Self::of(RegistryGuard::enter(live, at.bytes()).await?, live, &at, mode))
    }

    /// Another attempt for the same key. Its node takes the place of this one's, so it needs no room of its own.
    pub fn succeed(&self, mode: Mode) -> Self {
        let NodeAttempt { live, .. } = &self.candidate;
        Self::of(self.registered.succeed(), live, &self.candidate.berth(), mode)
    }

    fn of(registered: RegistryGuard<L>, live: &Rc<ActiveSession<L>>, at: &QueueLocation, mode: Mode) -> Self {
        let candidate = NodeAttempt::new(live.clone(), at, registered.guid, mode);
        // Among other programs' nodes the data only tells people whose node this is; no request is sent on by it.
        let says: &[u8] = if candidate.line.is_native() { b"" } else { live.member.as_bytes() };
        Self { says: says.into(), candidate, made: CreateTracker::default(), delayed: None, registered }
    }

    /// For a tenure that is kept for later requests: its node names this gateway, so that others can send requests on
    /// to it. Only a native node that holds alone does so.
    pub fn signed(mut self) -> Self {
        if self.candidate.mode == Mode::Exclusive && self.candidate.line.is_native() {
            self.says = self.candidate.live.signature().into();
        }
        self
    }

    /// For a key where nobody compares tokens: our requests may go on for `delay` after we are gone.
    pub fn delayed(self, delay: Option<Duration>) -> Self {
        match delay {
            Some(delay) => self.with(DelayedHandover::by(delay)),
            None => self,
        }
    }

    /// For an attempt that sends no request, and only puts the grant record of its key in order.
    pub fn sending_nothing(self) -> Self {
        self.with(DelayedHandover::sending_nothing())
    }

    fn with(mut self, delayed: DelayedHandover) -> Self {
        self.candidate.keeps_record();
        self.delayed = Some(delayed);
        self
    }

    /// Says that all requests under this node are over.
    pub fn all_known(&self) {
        self.delayed.iter().for_each(DelayedHandover::all_known);
    }

    fn leaves_clean(&self) -> bool {
        self.delayed.as_ref().is_some_and(DelayedHandover::leaves_clean)
    }

    /// For an attempt that stands in line for the exclusive node at `path`: its nodes have that path as data.
    pub fn towards(mut self, path: &str) -> Self {
        self.says = path.as_bytes().into();
        self
    }

    /// Makes the node and waits until it holds.
    pub async fn acquire(&self, caller: &mut impl AttemptObserver) -> Result<Grant, LockAttemptError> {
        let (node, children) = self.create().await?;
        self.wait(node, children, caller).await
    }

    /// Like [`Self::acquire`], but removes the node of `old` in the transaction that makes the new one. So nobody sees
    /// the key without a contender of ours, and a holder that yields is at the end of the queue at once.
    pub async fn acquire_instead_of(
        &self,
        old: &Self,
        caller: &mut impl AttemptObserver,
    ) -> Result<Grant, LockAttemptError> {
        match self.replace(old).await? {
            Some((node, children)) => self.wait(node, children, caller).await,
            None => {
                old.clear().await;
                self.acquire(caller).await
            }
        }
    }

    /// Makes the node and enters it in its line, for locks that do not hold by being first. Returns the node's name and
    /// the children of its parent.
    pub(super) async fn stand(
        &self,
        caller: &mut impl AttemptObserver,
    ) -> Result<(String, Vec<String>), LockAttemptError> {
        let (node, children) = self.create().await?;
        self.enter(&node, caller).await?;
        Ok((node.name, children))
    }

    /// E and S of the node's token, if the node may stay in its line.
    async fn enter(
        &self,
        node: &LockNode,
        caller: &mut impl AttemptObserver,
    ) -> Result<(u64, u32), LockAttemptError> {
        let live = &self.candidate.live;
        if node.seen.owner != live.link.id() {
            // Another session owns the node: our connection was given a new session id without notice. Our proof says
            // nothing of that session, so this one is given up.
            live.over.cancel();
            return Err(GrantError::Lost.into());
        }
        // Compared now and not after the wait: later grants to others are larger by right.
        let before = self.made.before().expect("a node that was found is one whose create was sent");
        let epoch = live.epoch(node.seen.czxid, before)?;
        let sequence = self.candidate.sequence(&node.name);
        live.metrics.sequence(sequence);
        if self.delayed.is_some() && sequence > LAST_RECORDED {
            return Err(GrantError::KeyLimit(NUMBERS_USED_UP).into());
        }
        if self.delayed.is_none() && sequence > self.candidate.line.last(live.sequence_limit) {
            if !self.candidate.line.is_native() {
                return Err(GrantError::KeyLimit(NUMBERS_USED_UP).into());
            }
            let full = ExhaustedParent::mark(&self.candidate).await?;
            self.clear().await;
            full.replaced(caller).await?;
            // The caller tries again with a new attempt, which makes its node under the new parent.
            return Err(GrantError::Lost.into());
        }
        Ok((epoch, sequence))
    }

    async fn wait(
        &self,
        node: LockNode,
        children: Vec<String>,
        caller: &mut impl AttemptObserver,
    ) -> Result<Grant, LockAttemptError> {
        let (epoch, sequence) = self.enter(&node, caller).await?;
        let contended = self.candidate.stand_in_line(&node.name, children, caller).await?;
        if let Some(delayed) = &self.delayed {
            let held = [HolderNode { candidate: &self.candidate, name: &node.name }];
            delayed.take_over(&held, epoch, caller).await?;
        }
        self.candidate.proven(caller).await?;
        self.delayed.iter().for_each(DelayedHandover::in_use);
        let evidence = Arc::new(LockValidity::of(self.candidate.live.proof.clone()));
        let nodes = [self.candidate.path(&node.name)].into();
        Ok(Grant { epoch, sequence, permit: None, evidence, nodes, contended })
    }

    /// A create is about to be sent.
    fn sending(&self) {
        self.made.sending(self.candidate.live.memory.highest());
    }

    /// Its node is gone.
    fn gone(&self) {
        self.made.nothing();
        self.delayed.iter().for_each(DelayedHandover::left);
    }

    /// The only node of this attempt was removed by the caller of this.
    pub(super) fn was_removed(&self) {
        self.made.nothing();
    }

    /// Returns when no node of this attempt is left, or the session is over.
    pub async fn clear(&self) {
        if !self.made.may_exist() {
            return;
        }
        if let Some(delayed) = self.delayed.as_ref().filter(|delayed| delayed.leaves_clean()) {
            for name in delayed.nodes() {
                delayed::leave(&self.candidate, &name).await;
            }
            delayed.left();
            if self.made.names().is_some() {
                return self.made.nothing();
            }
        }
        match self.made.names() {
            Some(name) => self.candidate.remove(&name).await,
            None => self.candidate.purge().await,
        }
        self.made.nothing();
    }
}

/// Refusal text for a lock of other programs whose sequence numbers are used up.
pub(super) const NUMBERS_USED_UP: &str =
    "the numbers below the lock path are used up; remove its parent while no program uses it";

impl<L: ZkClient> Drop for Attempt<L> {
    fn drop(&mut self) {
        if self.made.may_exist() {
            // `clear` has not ended, so the node may still hold; it stays registered and nobody removes it.
            self.registered.stays();
        }
    }
}
