//! The life of the lock node of one key, from its creation to its confirmed removal.
//!
//! The task that runs an attempt owns the node. The caller may go away at any moment: the task detects that at its next
//! step and removes the node. No request to ZooKeeper is abandoned half way, because it may still take effect. In every
//! case [`LockAttempt::remove_nodes`] has to be the last call.

mod node_creation;

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockLocation, LockMode},
};
use fencegate_zookeeper::{
    error::GrantError,
    session::{active_session::ActiveSession, client::ZkClient, lock_validity::LockValidity},
};
use tokio::task::yield_now;

use super::{
    create_tracker::ZnodeCreationTracker,
    delayed_handover::{self, DelayedHandover, HeldLockNode, LAST_RECORDED},
    grant::{LockAttemptError, LockAttemptObserver, LockGrant},
    lock_node::{LockNode, LockNodeAttempt, LockNodeLocation},
    sequence_rollover::ExhaustedSequenceParent,
};
use crate::registry_guard::LockNodeRegistryGuard;

/// One attempt to take the lock of one key with one lock node.
pub struct LockAttempt<L: ZkClient> {
    pub candidate: LockNodeAttempt<L>,
    /// Whether a lock node of this attempt may exist, and its name if that is known.
    made: ZnodeCreationTracker<String>,
    /// The data that this attempt writes into its lock node.
    says: Box<[u8]>,
    /// The state of the attempt's grant record; `None` if the parent of the key keeps none.
    delayed: Option<DelayedHandover>,
    registered: LockNodeRegistryGuard<L>,
}

impl<L: ZkClient> LockAttempt<L> {
    /// Registers the attempt in the session's registry, before any node is made. Waits while the registry has no
    /// capacity for another lock path.
    pub async fn begin(
        live: &Rc<ActiveSession<L>>,
        key: &ResourceKey,
        site: &LockLocation,
        mode: LockMode,
    ) -> Result<Self, GrantError> {
        let at = LockNodeLocation::for_site(&live.paths, key, site)?;
        if live.registry.parents.has_attempts(&at.parent) {
            // A client that was just answered may be back before the task of its last request has run, which removes
            // the node of that request. Let it run first: then this attempt does not have to queue behind its own
            // gateway.
            yield_now().await;
        }
        Ok(Self::new(LockNodeRegistryGuard::register(live, at.max_node_path_len()).await?, live, &at, mode))
    }

    /// Returns another attempt for the same key. Its node replaces the node of this attempt, so it needs no capacity of
    /// its own in the registry.
    pub fn successor(&self, mode: LockMode) -> Self {
        let LockNodeAttempt { live, .. } = &self.candidate;
        Self::new(self.registered.register_successor(), live, &self.candidate.location(), mode)
    }

    fn new(
        registered: LockNodeRegistryGuard<L>,
        live: &Rc<ActiveSession<L>>,
        at: &LockNodeLocation,
        mode: LockMode,
    ) -> Self {
        let candidate = LockNodeAttempt::new(live.clone(), at, registered.guid, mode);
        // Below a parent of other programs the data only shows people the owner of the node; gateways do not forward by
        // it.
        let says: &[u8] = if candidate.layout.is_native() { b"" } else { live.member.as_bytes() };
        Self {
            says: says.into(),
            candidate,
            made: ZnodeCreationTracker::default(),
            delayed: None,
            registered,
        }
    }

    /// Writes the name of this gateway into the lock node of a tenure that is kept for later requests, so that peers
    /// can forward requests to it. Only an exclusive node of the native layout gets that name.
    pub fn with_gateway_reference(mut self) -> Self {
        if self.candidate.mode == LockMode::Exclusive && self.candidate.layout.is_native() {
            self.says = self.candidate.live.gateway_reference().into();
        }
        self
    }

    /// Makes the attempt keep the grant record of a key whose upstream does not compare tokens: requests under this
    /// attempt may go on for `delay` after its end. With `None` no record is kept.
    pub fn with_handover_delay(self, delay: Option<Duration>) -> Self {
        match delay {
            Some(delay) => self.with_handover(DelayedHandover::with_handover_delay(delay)),
            None => self,
        }
    }

    /// Makes this an attempt that sends no request: it waits out the last holder's delay, and then writes a clean
    /// record.
    pub fn for_record_cleanup(self) -> Self {
        self.with_handover(DelayedHandover::for_record_cleanup())
    }

    fn with_handover(mut self, delayed: DelayedHandover) -> Self {
        self.candidate.set_parent_keeps_record();
        self.delayed = Some(delayed);
        self
    }

    /// Records that all requests under this attempt's node are over.
    pub fn mark_request_outcomes_known(&self) {
        self.delayed.iter().for_each(DelayedHandover::mark_outcomes_known);
    }

    fn can_write_clean_record(&self) -> bool {
        self.delayed.as_ref().is_some_and(DelayedHandover::can_write_clean_record)
    }

    /// Makes the attempt queue for the exclusive node at `path`: its lock node has that path as data.
    pub(crate) fn for_exclusive_node(mut self, path: &str) -> Self {
        self.says = path.as_bytes().into();
        self
    }

    /// Creates the node and waits until it holds.
    pub async fn acquire(
        &self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<LockGrant, LockAttemptError> {
        let (node, children) = self.create_node().await?;
        self.wait_for_lock(node, children, caller).await
    }

    /// Like [`Self::acquire`], but removes the node of `old` in the transaction that creates the new one. So the key is
    /// never visible without a contender of this gateway, and a holder that yields is at the end of the queue at once.
    pub async fn acquire_instead_of(
        &self,
        old: &Self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<LockGrant, LockAttemptError> {
        match self.replace_node(old).await? {
            Some((node, children)) => self.wait_for_lock(node, children, caller).await,
            None => {
                old.remove_nodes().await;
                self.acquire(caller).await
            }
        }
    }

    /// Creates the node and checks it, but does not wait in the queue: in a lock with several holders the first node is
    /// not the only one that holds. Returns the node's name and the children of its parent.
    pub(super) async fn join_queue(
        &self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<(String, Vec<String>), LockAttemptError> {
        let (node, children) = self.create_node().await?;
        self.derive_token_parts(&node, caller).await?;
        Ok((node.name, children))
    }

    /// Checks that the node may stay in its queue, and returns epoch and sequence of its token.
    async fn derive_token_parts(
        &self,
        node: &LockNode,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<(u64, u32), LockAttemptError> {
        let live = &self.candidate.live;
        if node.stat.owner != live.client.id() {
            // Another session owns the node: the connection got a new session id without notice. The deadline of this
            // session does not cover the other one, so this session is given up.
            live.ended.cancel();
            return Err(GrantError::Lost.into());
        }
        // The epoch is checked now and not after the wait, because other holders may rightly get larger epochs
        // meanwhile.
        let before =
            self.made.highest_epoch_before().expect("a node that was found is one whose create was sent");
        let epoch = live.checked_token_epoch(node.stat.czxid, before)?;
        let sequence = self.candidate.sequence(&node.name);
        live.metrics.record_node_sequence(sequence);
        if self.delayed.is_some() && sequence > LAST_RECORDED {
            return Err(GrantError::KeyLimit(NUMBERS_USED_UP).into());
        }
        if self.delayed.is_none()
            && sequence > self.candidate.layout.last_usable_sequence(live.sequence_limit)
        {
            if !self.candidate.layout.is_native() {
                return Err(GrantError::KeyLimit(NUMBERS_USED_UP).into());
            }
            let full = ExhaustedSequenceParent::observe_lock_parent(&self.candidate).await?;
            self.remove_nodes().await;
            full.wait_parent_replaced(caller).await?;
            // The caller retries with a new attempt, which creates its node under the new parent.
            return Err(GrantError::Lost.into());
        }
        Ok((epoch, sequence))
    }

    async fn wait_for_lock(
        &self,
        node: LockNode,
        children: Vec<String>,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<LockGrant, LockAttemptError> {
        let (epoch, sequence) = self.derive_token_parts(&node, caller).await?;
        let contended = self.candidate.wait_in_queue(&node.name, children, caller).await?;
        if let Some(delayed) = &self.delayed {
            let held = [HeldLockNode { candidate: &self.candidate, name: &node.name }];
            delayed.take_over_keys(&held, epoch, caller).await?;
        }
        self.candidate.wait_session_valid(caller).await?;
        self.delayed.iter().for_each(DelayedHandover::mark_outcomes_unknown);
        let validity = Arc::new(LockValidity::new(self.candidate.live.session_deadline.clone()));
        let nodes = [self.candidate.path(&node.name)].into();
        Ok(LockGrant { epoch, sequence, permit: None, validity, nodes, contended })
    }

    /// Records that a create is about to be sent.
    fn record_create_sent(&self) {
        self.made.record_create_sent(self.candidate.live.token_history.highest_epoch());
    }

    /// Records that the node of this attempt is gone, and that the grant record is no longer about this attempt.
    fn mark_gone(&self) {
        self.made.record_no_nodes_left();
        self.delayed.iter().for_each(DelayedHandover::clear_record_ownership);
    }

    /// Records that the caller has removed the only node of this attempt.
    pub(super) fn mark_removed(&self) {
        self.made.record_no_nodes_left();
    }

    /// Removes the nodes of this attempt. Returns when none is left, or when the session is over.
    pub async fn remove_nodes(&self) {
        if !self.made.may_nodes_exist() {
            return;
        }
        if let Some(delayed) = self.delayed.as_ref().filter(|delayed| delayed.can_write_clean_record()) {
            for name in delayed.node_names() {
                delayed_handover::remove_node_and_write_clean(&self.candidate, &name).await;
            }
            delayed.clear_record_ownership();
            if self.made.created_names().is_some() {
                return self.made.record_no_nodes_left();
            }
        }
        match self.made.created_names() {
            Some(name) => self.candidate.remove_node(&name).await,
            None => self.candidate.remove_all_nodes().await,
        }
        self.made.record_no_nodes_left();
    }
}

/// Refusal text for a lock of other programs whose sequence numbers are used up.
pub(super) const NUMBERS_USED_UP: &str =
    "the numbers below the lock path are used up; remove its parent while no program uses it";

impl<L: ZkClient> Drop for LockAttempt<L> {
    fn drop(&mut self) {
        if self.made.may_nodes_exist() {
            // `remove_nodes` has not ended, so the node may still hold; it stays registered and is not removed.
            self.registered.retain_until_session_end();
        }
    }
}
