//! Several keys at once: all nodes are created in one transaction, so that no two sets can wait for each other in a
//! circle.
//!
//! The nodes of a set share one czxid. A set only waits for nodes of earlier transactions, so waits point to smaller
//! zxids only, and there is no deadlock.
//!
//! All nodes and their queues are read in one round trip, whatever the number of keys. The set holds once each node is first
//! in its queue, in lists that were all sent after the transaction and after every wait: see [`MultiKeyAttempt::acquire`].

use std::{future::Future, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockLocation, LockMode},
};
use fencegate_process::failpoint;
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        active_session::ActiveSession,
        client::{CreatedNode, MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
        lock_validity::LockValidity,
    },
};
use futures_util::future::{OptionFuture, join_all};
use tokio::time::sleep;

use super::{
    attempt::NUMBERS_USED_UP,
    create_tracker::ZnodeCreationTracker,
    delayed_handover::{self, DelayedHandover, HeldLockNode, LAST_RECORDED},
    grant::{LockAttemptError, LockAttemptObserver, LockGrant},
    lock_node::{CREATE_ROUNDS, LockNode, LockNodeAttempt, LockNodeLocation, PATIENT_ROUNDS, definite_error},
    sequence_rollover::ExhaustedSequenceParent,
};
use crate::registry_guard::LockNodeRegistryGuard;

/// The lock nodes of a set, in the order of its candidates.
struct MultiKeyLockNodes {
    nodes: Vec<LockNode>,
    /// The children of the parent of each node.
    queues: Vec<Vec<String>>,
}

/// One attempt at several keys. In every case [`MultiKeyAttempt::remove_nodes`] has to be the last call.
pub struct MultiKeyAttempt<L: ZkClient> {
    live: Rc<ActiveSession<L>>,
    candidates: Vec<LockNodeAttempt<L>>,
    /// Whether lock nodes of this attempt may exist, and their names, one per candidate, if they are known.
    made: ZnodeCreationTracker<Vec<String>>,
    /// The state of the attempt's grant records; `None` if the parents of the keys keep none.
    delayed: Option<DelayedHandover>,
    registered: LockNodeRegistryGuard<L>,
}

impl<L: ZkClient> MultiKeyAttempt<L> {
    /// Begins an attempt at `keys`, which must have no duplicates: two nodes for one key in a transaction would wait
    /// for each other. Each key has its own site, and so its own layout.
    pub async fn begin(
        live: &Rc<ActiveSession<L>>,
        keys: &[(ResourceKey, LockLocation)],
        mode: LockMode,
    ) -> Result<Self, GrantError> {
        let at = keys.iter().map(|(key, site)| LockNodeLocation::for_site(&live.paths, key, site));
        let at = at.collect::<Result<Vec<_>, _>>()?;
        let registered =
            LockNodeRegistryGuard::register(live, at.iter().map(LockNodeLocation::max_node_path_len).sum())
                .await?;
        let candidates =
            at.iter().map(|at| LockNodeAttempt::new(live.clone(), at, registered.guid, mode)).collect();
        Ok(Self {
            live: live.clone(),
            candidates,
            made: ZnodeCreationTracker::default(),
            delayed: None,
            registered,
        })
    }

    /// Makes the attempt keep the grant records of keys whose upstreams do not compare tokens: requests under this
    /// attempt may go on for `delay` after its end. With `None` no records are kept.
    pub fn with_delay(mut self, delay: Option<Duration>) -> Self {
        if let Some(delay) = delay {
            self.candidates.iter_mut().for_each(LockNodeAttempt::set_parent_keeps_record);
            self.delayed = Some(DelayedHandover::with_handover_delay(delay));
        }
        self
    }

    /// Records that all requests under the nodes of this set are over.
    pub fn mark_outcomes_known(&self) {
        self.delayed.iter().for_each(DelayedHandover::mark_outcomes_known);
    }

    pub fn candidates(&self) -> &[LockNodeAttempt<L>] {
        &self.candidates
    }

    /// Creates all nodes and waits until each of them holds.
    ///
    /// The lists by which a set holds were all sent after its transaction, and after its last wait. A node that is first stays
    /// first: nobody comes before it. Only another client can take that away, by removing the node, so a list that is read
    /// before a wait at another key says nothing about the time after that wait, and all queues are read anew. Where
    /// nothing was waited for, the first lists are the last ones, as for a single key. A node that is removed behind its
    /// list is found by the watches on a holder's own nodes, in both cases.
    pub async fn acquire(
        &self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<LockGrant, LockAttemptError> {
        let MultiKeyLockNodes { nodes, mut queues } = self.create_nodes().await?;
        let first = &nodes.first().expect("a set has at least one key").stat;
        if nodes.iter().any(|node| node.stat.owner != self.live.client.id()) {
            self.live.ended.cancel();
        }
        if self.live.ended.is_cancelled() || nodes.iter().any(|node| node.stat.czxid != first.czxid) {
            return Err(GrantError::Lost.into());
        }
        // The epoch is checked now and not after the wait, because other holders may rightly get larger epochs
        // meanwhile.
        let before =
            self.made.highest_epoch_before().expect("nodes that were found are those whose create was sent");
        let epoch = self.live.checked_token_epoch(first.czxid, before)?;
        let limit = self.live.sequence_limit;
        let last = |candidate: &LockNodeAttempt<L>| match self.delayed {
            Some(_) => LAST_RECORDED,
            None => candidate.layout.last_usable_sequence(limit),
        };
        let numbered = self.candidates.iter().zip(&nodes);
        let full: Vec<_> = numbered
            .filter(|(candidate, node)| candidate.sequence(&node.name) > last(candidate))
            .map(|(candidate, _)| candidate)
            .collect();
        if full.iter().any(|candidate| self.delayed.is_some() || !candidate.layout.is_native()) {
            return Err(GrantError::KeyLimit(NUMBERS_USED_UP).into());
        }
        if !full.is_empty() {
            let marked = join_all(
                full.iter().map(|candidate| ExhaustedSequenceParent::observe_lock_parent(candidate)),
            )
            .await;
            self.remove_nodes().await;
            for marked in marked {
                marked?.wait_parent_replaced(caller).await?;
            }
            return Err(GrantError::Lost.into());
        }
        for (candidate, node) in self.candidates.iter().zip(&nodes) {
            self.live.metrics.record_node_sequence(candidate.sequence(&node.name));
        }
        let mut contended = false;
        while self.wait_in_first_queue(&nodes, queues, caller).await? {
            contended = true;
            queues = self.list_queues().await?;
        }
        if let Some(delayed) = &self.delayed {
            let held = self.candidates.iter().zip(&nodes);
            let held: Vec<_> =
                held.map(|(candidate, node)| HeldLockNode { candidate, name: &node.name }).collect();
            delayed.take_over_keys(&held, epoch, caller).await?;
        }
        self.candidates.first().expect("a set has at least one key").wait_session_valid(caller).await?;
        self.delayed.iter().for_each(DelayedHandover::mark_outcomes_unknown);
        let validity = Arc::new(LockValidity::new(self.live.session_deadline.clone()));
        let nodes =
            self.candidates.iter().zip(&nodes).map(|(candidate, node)| candidate.path(&node.name)).collect();
        Ok(LockGrant { epoch, sequence: 0, permit: None, validity, nodes, contended })
    }

    /// Waits at the first key whose node is not the first in its queue, until it is. False: each node was the first, and nothing
    /// was waited for.
    async fn wait_in_first_queue(
        &self,
        nodes: &[LockNode],
        queues: Vec<Vec<String>>,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<bool, LockAttemptError> {
        for ((candidate, node), children) in self.candidates.iter().zip(nodes).zip(queues) {
            if candidate.wait_in_queue(&node.name, children, caller).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The children of all parents, in one round trip.
    async fn list_queues(&self) -> Result<Vec<Vec<String>>, GrantError> {
        join_all(self.candidates.iter().map(LockNodeAttempt::list_children)).await.into_iter().collect()
    }

    /// Creates the nodes of all keys. If that fails, the parents that were created for them in any round are removed
    /// again.
    async fn create_nodes(&self) -> Result<MultiKeyLockNodes, GrantError> {
        let mut made = vec![false; self.candidates.len()];
        let created = self.create_in_rounds(&mut made).await;
        if created.is_err() {
            self.remove_parents(&made).await;
        }
        created
    }

    /// Tries to create the nodes until a round succeeds. Sets `made` for each candidate whose parent was created here.
    async fn create_in_rounds(&self, made: &mut [bool]) -> Result<MultiKeyLockNodes, GrantError> {
        let requested: Vec<_> = self.candidates.iter().map(LockNodeAttempt::requested_path).collect();
        let node = |path| MultiOp::Create { path, data: b"", kind: NodeCreateMode::EphemeralSequential };
        let steps: Vec<_> = requested.iter().map(|path| node(path)).collect();
        let mut missing = !self
            .candidates
            .iter()
            .all(|candidate| self.live.registry.parents.is_expected_to_exist(&candidate.parent));
        for round in 0..CREATE_ROUNDS {
            if round >= PATIENT_ROUNDS {
                sleep(self.random_pause()).await;
            }
            self.made.record_create_sent(self.live.token_history.highest_epoch());
            // The parents are sent directly before the nodes. A holder that leaves a key removes its parent, and among
            // many keys that happens all the time.
            let parents = missing.then(|| self.create_parents());
            let commit = self.live.client.commit(&steps);
            failpoint::pass("after_create_sent");
            let (parents, committed) = tokio::join!(OptionFuture::from(parents), commit);
            let parents = parents.unwrap_or_default();
            made.iter_mut().zip(&parents).for_each(|(made, parent)| *made |= parent.is_ok());
            match committed {
                Ok(paths) => {
                    if let Some(nodes) = self.read_nodes(paths).await? {
                        return Ok(nodes);
                    }
                    if let Some(nodes) = self.recover_created_nodes().await? {
                        return Ok(nodes);
                    }
                }
                Err(MultiError { fault: ZkError::NoNode, .. }) => {
                    self.made.record_no_nodes_left();
                    missing = true;
                    self.create_all_ancestors(parents).await?;
                }
                Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                    if let Some(nodes) = self.recover_created_nodes().await? {
                        return Ok(nodes);
                    }
                }
                Err(MultiError { fault, .. }) => {
                    self.made.record_no_nodes_left();
                    return Err(definite_error(fault));
                }
            }
        }
        Err(GrantError::Service("the lock nodes could not be made: a parent came and went".into()))
    }

    /// Reads the nodes and their queues in one round trip; the nodes because servers before 3.9 answer creates in a
    /// transaction without their czxid. `None`: an answer was lost, or a node was removed.
    async fn read_nodes(&self, paths: Vec<Option<String>>) -> Result<Option<MultiKeyLockNodes>, GrantError> {
        let paths: Vec<String> = paths.into_iter().flatten().collect();
        if paths.len() != self.candidates.len() {
            return Ok(None);
        }
        // These reads are sent before the lists: a request is sent when its method is called, or when its future is
        // first polled.
        let looked_at = join_all(paths.iter().map(|path| self.live.client.stat(path)));
        let (seen, queues) = tokio::join!(looked_at, self.list_queues());
        let mut nodes = Vec::with_capacity(paths.len());
        for (path, seen) in paths.iter().zip(seen) {
            match seen {
                Ok(Some(stat)) => {
                    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                    nodes.push(LockNode { name, stat });
                }
                Ok(None) | Err(ZkError::Ambiguous(_)) => return Ok(None),
                Err(fault) => return Err(definite_error(fault)),
            }
        }
        self.made.record_names(&nodes.iter().map(|node| node.name.clone()).collect());
        Ok(Some(MultiKeyLockNodes { nodes, queues: queues? }))
    }

    /// Determines whether the nodes were created, after a lost answer. One transaction creates them, so each key has an
    /// own node or none has, unless another client removed one. `None`: no key has an own node, and only then may the
    /// create be sent again.
    async fn recover_created_nodes(&self) -> Result<Option<MultiKeyLockNodes>, GrantError> {
        let mut nodes = Vec::with_capacity(self.candidates.len());
        for candidate in &self.candidates {
            nodes.extend(candidate.recover_created_node().await?.map(|(node, _)| node));
        }
        match nodes.len() {
            0 => Ok(None),
            // The lists by which the nodes were found were read one after the other, so all of them are read anew at
            // once.
            all if all == self.candidates.len() => {
                Ok(Some(MultiKeyLockNodes { nodes, queues: self.list_queues().await? }))
            }
            _ => Err(GrantError::Lost),
        }
    }

    /// Creates all parents at once; most exist already.
    fn create_parents(&self) -> impl Future<Output = Vec<Result<CreatedNode, ZkError>>> {
        let sent = self.candidates.iter().map(|candidate| {
            // Parents of other programs' locks are created only when they are found missing.
            let (record, kind) = candidate.parent_data();
            let ours = candidate.layout.is_native();
            let sent = ours.then(|| self.live.client.create(&candidate.parent, record, kind));
            async { OptionFuture::from(sent).await.unwrap_or(Err(ZkError::NoNode)) }
        });
        // Requests are sent when their method is called, so all of these are sent before the next call.
        join_all(sent.collect::<Vec<_>>())
    }

    /// Removes the parents that were created here and not used: the server keeps a container that never had a child.
    async fn remove_parents(&self, made: &[bool]) {
        for (candidate, _) in self.candidates.iter().zip(made).filter(|(_, made)| **made) {
            candidate.remove_unused_parent().await;
        }
    }

    /// A random pause before the next round. The parent of a key may come and go in a rhythm, and after equal pauses
    /// the rounds might meet the same moment again and again.
    fn random_pause(&self) -> Duration {
        let mut byte = [0];
        self.live.randomness.fill(&mut byte);
        Duration::from_millis(1 + u64::from(byte[0]) % 20)
    }

    /// Creates the nodes above each parent that could not be created without them.
    async fn create_all_ancestors(
        &self,
        parents: Vec<Result<CreatedNode, ZkError>>,
    ) -> Result<(), GrantError> {
        for (candidate, made) in self.candidates.iter().zip(parents) {
            match made {
                Ok(_) | Err(ZkError::NodeExists | ZkError::Ambiguous(_)) => {}
                Err(ZkError::NoNode) => candidate.create_ancestors().await?,
                Err(fault) => return Err(definite_error(fault)),
            }
        }
        Ok(())
    }

    /// Returns when no node of this attempt is left, or the session is over.
    pub async fn remove_nodes(&self) {
        if !self.made.may_nodes_exist() {
            return;
        }
        if let Some(delayed) = self.delayed.as_ref().filter(|delayed| delayed.can_write_clean_record()) {
            let nodes = delayed.node_names();
            let leaving = self.candidates.iter().zip(&nodes);
            join_all(
                leaving
                    .map(|(candidate, name)| delayed_handover::remove_node_and_write_clean(candidate, name)),
            )
            .await;
            delayed.clear_record_ownership();
            if self.made.created_names().is_some() {
                return self.made.record_no_nodes_left();
            }
        }
        match self.made.created_names() {
            Some(names) => drop(
                join_all(
                    self.candidates.iter().zip(&names).map(|(candidate, name)| candidate.remove_node(name)),
                )
                .await,
            ),
            None => drop(join_all(self.candidates.iter().map(LockNodeAttempt::remove_all_nodes)).await),
        }
        self.made.record_no_nodes_left();
    }
}

impl<L: ZkClient> Drop for MultiKeyAttempt<L> {
    fn drop(&mut self) {
        if self.made.may_nodes_exist() {
            // `remove_nodes` has not ended, so the nodes may still hold.
            self.registered.retain_until_session_end();
        }
    }
}
