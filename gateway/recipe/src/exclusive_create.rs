//! A node whose path several contenders compete for. An attempt creates it while it has a lock node in the queue, and
//! releases both together.
//!
//! ZooKeeper deletes by path and version only, and versions begin anew with each node. So each transaction that creates
//! the node checks that the own lock node in the queue exists, and the one that removes the node removes that lock node
//! as well. The name of a lock node is unique. So a repeated transaction is done only once, and a successor's node is
//! never removed by mistake.

use std::{cell::RefCell, rc::Rc};

use fencegate_process::failpoint;
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        active_session::ActiveSession,
        client::{MultiError, MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkError},
    },
};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    attempt::LockAttempt,
    create_tracker::ZnodeCreationTracker,
    lock_node::{LockNodeAttempt, REFUSED_PAUSE, UNWRITTEN_VERSION, definite_error},
    node_data,
    registry_guard::LockNodeRegistryGuard,
};

/// The contested node of one attempt. In every case [`ExclusiveCreateAttempt::remove_nodes`] has to be the last call.
pub(super) struct ExclusiveCreateAttempt<L: ZkClient> {
    live: Rc<ActiveSession<L>>,
    /// The path of the node, or the path that was tried last.
    path: RefCell<Rc<str>>,
    /// The data of the node, by which this attempt recognizes its own node.
    says: String,
    /// The creating transaction writes the node this often, so the node has this number as its version.
    writes: u8,
    /// Whether the node may exist, and its czxid if that is known.
    made: ZnodeCreationTracker<i64>,
    /// The registry entry that counts the bytes of the node's path.
    registered: LockNodeRegistryGuard<L>,
}

/// The result of an attempt to create the node.
pub(super) enum ExclusiveCreateOutcome {
    Ours(NodeStat),
    /// Another contender has the node. The number is the id of the session that owns it; `None` if the node existed and
    /// has gone.
    Taken(Option<i64>),
    /// The parent is missing.
    NoParent,
}

impl<L: ZkClient> ExclusiveCreateAttempt<L> {
    /// Prepares the node of the attempt that queues with `line`. `longest`: the bytes of the longest path that may be
    /// tried. Waits while the registry has no capacity.
    pub(super) async fn prepare_exclusive_create(
        line: &LockAttempt<L>,
        longest: usize,
        writes: u8,
    ) -> Result<Self, GrantError> {
        let LockNodeAttempt { live, guid, .. } = &line.candidate;
        let registered = LockNodeRegistryGuard::register(live, longest).await?;
        let says = node_data::encode_exclusive_node_data(&live.member, *guid);
        let path = RefCell::new("".into());
        Ok(Self { live: live.clone(), path, says, writes, made: ZnodeCreationTracker::default(), registered })
    }

    /// The path of the node.
    pub(super) fn path(&self) -> Rc<str> {
        self.path.borrow().clone()
    }

    /// Tries to create the node until its owner is known. `first`: a step that fails if the own lock node in the queue
    /// is gone.
    ///
    /// After a lost answer the transaction is sent again. If the first one was done, the second one finds a node with
    /// the own data. No create can take effect once the own lock node is gone. So before a node at another path is
    /// tried, the result of this one is known.
    pub(super) async fn try_create(
        &self,
        candidate: &LockNodeAttempt<L>,
        path: &str,
        first: MultiOp<'_>,
    ) -> Result<ExclusiveCreateOutcome, GrantError> {
        let link = &self.live.client;
        let says = self.says.as_bytes();
        let create = MultiOp::Create { path, data: says, kind: NodeCreateMode::Ephemeral };
        let writes = (0..self.writes).map(|_| MultiOp::Set { path, data: says });
        let steps: Vec<_> = [first, create].into_iter().chain(writes).collect();
        self.path.replace(path.into());
        loop {
            self.made.record_create_sent(self.live.token_history.highest_epoch());
            let made = link.commit(&steps);
            // Servers before 3.9 leave the czxid out of the answer to a create in a transaction, so the node is read
            // directly after the transaction.
            let read = link.data(path);
            failpoint::pass("after_create_sent");
            let (made, read) = tokio::join!(made, read);
            match made {
                Ok(_) | Err(MultiError { step: Some(1), fault: ZkError::NodeExists }) => {
                    if let Some(tried) = self.identify_owner(candidate, read).await? {
                        return Ok(tried);
                    }
                }
                Err(MultiError { step: Some(0), fault: ZkError::NoNode }) => return Err(GrantError::Lost),
                Err(MultiError { step: Some(1), fault: ZkError::NoNode }) => {
                    return Ok(ExclusiveCreateOutcome::NoParent);
                }
                Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                    candidate.pause_before_retry().await?
                }
                Err(MultiError { fault, .. }) => return Err(definite_error(fault)),
            }
        }
    }

    /// Determines the owner from the read that followed the create. `None`: unknown, try again.
    async fn identify_owner(
        &self,
        candidate: &LockNodeAttempt<L>,
        read: Result<(Vec<u8>, NodeStat), ZkError>,
    ) -> Result<Option<ExclusiveCreateOutcome>, GrantError> {
        let (says, seen) = match read {
            Ok(read) => read,
            // The node existed and is gone again, whichever contender created it.
            Err(ZkError::NoNode) => return Ok(Some(ExclusiveCreateOutcome::Taken(None))),
            Err(ZkError::Ambiguous(_)) => return candidate.pause_before_retry().await.map(|()| None),
            Err(fault) => return Err(definite_error(fault)),
        };
        if says == self.says.as_bytes() {
            self.made.record_names(&seen.czxid);
            return Ok(Some(ExclusiveCreateOutcome::Ours(seen)));
        }
        self.made.record_no_nodes_left();
        Ok(Some(ExclusiveCreateOutcome::Taken(Some(seen.owner))))
    }

    /// The epoch of the token that this node makes.
    pub(super) fn token_epoch(&self, seen: NodeStat) -> Result<u64, GrantError> {
        if seen.owner != self.live.client.id() {
            // Another session owns the node. The deadline of this session does not cover the other one, so this session
            // is given up.
            self.live.ended.cancel();
            return Err(GrantError::Lost);
        }
        let before =
            self.made.highest_epoch_before().expect("a node that was found is one whose create was sent");
        self.live.checked_token_epoch(seen.czxid, before)
    }

    /// Whether this attempt created this node, even if another client has changed the data of the node.
    pub(super) fn is_ours(&self, says: &[u8], seen: NodeStat) -> bool {
        let ours = match self.made.created_names() {
            Some(czxid) => seen.czxid == czxid,
            None => says == self.says.as_bytes(),
        };
        ours && seen.owner == self.live.client.id()
    }

    /// Removes the node and the lock node in the queue. Returns when neither is left, or when the session is over.
    /// `place`: the path of that lock node, if the node was ever tried.
    pub(super) async fn remove_nodes(&self, line: &LockAttempt<L>, place: Option<&str>) {
        if let (Some(place), true) = (place, self.made.may_nodes_exist()) {
            self.remove_with_queue_node(line, place).await;
        }
        line.remove_nodes().await;
        // Once the lock node in the queue is gone, no create of this attempt can take effect any more, so the node can
        // be looked for and removed.
        if self.made.may_nodes_exist() {
            self.remove_own_node(&line.candidate).await;
        }
        self.made.record_no_nodes_left();
    }

    /// Removes the node and the lock node `place` in one transaction, if both are unchanged. A repeated transaction
    /// finds `place` gone, and changes nothing.
    async fn remove_with_queue_node(&self, line: &LockAttempt<L>, place: &str) {
        let live = &self.live;
        let candidate = &line.candidate;
        let path = self.path();
        let node = MultiOp::Delete { path: &path, version: Some(self.writes.into()) };
        let own = MultiOp::Delete { path: place, version: None };
        // The version keeps a parent with a grant record from being removed.
        let parent = MultiOp::Delete { path: &candidate.parent, version: Some(UNWRITTEN_VERSION) };
        let steps = [own, node, parent];
        while !live.registry.is_closing() {
            let last = candidate.is_only_contender();
            let steps = if last { &steps[..] } else { &steps[..2] };
            match live.client.commit(steps).await {
                Ok(_) => {
                    candidate.mark_lock_node_removed(last);
                    line.mark_removed();
                    return self.made.record_no_nodes_left();
                }
                Err(MultiError { step: Some(2), .. }) => candidate.mark_contended(),
                // Another client removed one of the nodes, or an earlier try of this transaction was done. The caller
                // checks each node by itself.
                Err(MultiError {
                    fault: ZkError::NoNode | ZkError::BadVersion | ZkError::SessionEnded,
                    ..
                }) => return,
                Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                    if candidate.pause_before_retry().await.is_err() {
                        return;
                    }
                }
                Err(MultiError { fault, .. }) => {
                    warn!(%fault, path = live.paths.redacted_path(&path), "the lock node could not be removed yet");
                    sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    /// Reads the node before each delete: only this attempt's node is removed, and only in the version that was read.
    async fn remove_own_node(&self, candidate: &LockNodeAttempt<L>) {
        let live = &self.live;
        let path = self.path();
        while !live.registry.is_closing() {
            let synced = live.client.sync(&path);
            let read = live.client.data(&path);
            let fault = match tokio::join!(synced, read) {
                (Ok(()), Ok((says, seen))) if self.is_ours(&says, seen) => {
                    let steps = [MultiOp::Delete { path: &path, version: Some(seen.version) }];
                    match live.client.commit(&steps).await {
                        Ok(_) | Err(MultiError { fault: ZkError::NoNode, .. }) => return,
                        Err(MultiError { fault, .. }) => fault,
                    }
                }
                // The node is gone, or it belongs to another contender.
                (Ok(()), Ok(_)) | (Ok(()) | Err(ZkError::NoNode), Err(ZkError::NoNode)) => return,
                (Err(fault), _) | (_, Err(fault)) => fault,
            };
            match fault {
                ZkError::SessionEnded => return,
                ZkError::Ambiguous(_) | ZkError::BadVersion => {
                    if candidate.pause_before_retry().await.is_err() {
                        return;
                    }
                }
                fault => {
                    debug!(%fault, path = live.paths.redacted_path(&path), "looking again for what is left");
                    sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }
}

impl<L: ZkClient> Drop for ExclusiveCreateAttempt<L> {
    fn drop(&mut self) {
        if self.made.may_nodes_exist() {
            // `remove_nodes` has not ended, so the node may still hold.
            self.registered.retain_until_session_end();
        }
    }
}
