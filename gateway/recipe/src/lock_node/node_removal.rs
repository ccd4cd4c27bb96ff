//! How an attempt removes its nodes: alone, with the parent, or below a retained parent.

use fencegate_zookeeper::session::{
    batch::{DeleteChild, DeleteWithParent},
    client::{MultiError, ZkClient, ZkError},
};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{LockNodeAttempt, REFUSED_PAUSE, UNWRITTEN_VERSION};

impl<L: ZkClient> LockNodeAttempt<L> {
    /// Whether the parent is retained when the last node of this attempt goes. A parent that keeps a grant record is
    /// never retained in this way.
    fn decide_keep_parent(&self) -> bool {
        if !self.is_only_contender() {
            self.mark_used_by_others();
            return false;
        }
        self.record.is_empty() && self.live.registry.parents.kept.record_uncontended_visit(self.mark)
    }

    /// Removes every node of this attempt. Returns early if the session is over or given up, because its nodes go with
    /// it. The nodes are listed anew, because the attempt may have missed an answer.
    pub(crate) async fn remove_all_nodes(&self) {
        // A create of this attempt may still be queued. If it were sent after the list, its node would have no owner.
        self.live.batch_queue.wait_all_answered().await;
        while !self.live.registry.is_closing() {
            let synced = self.live.client.sync(&self.parent);
            let children = self.live.client.children(&self.parent);
            match tokio::join!(synced, children) {
                (Ok(()), Ok(children)) => {
                    self.record_children(&children);
                    for name in self.layout.nodes_with_guid(&children, self.guid) {
                        self.remove_node(name).await;
                    }
                    return;
                }
                (Err(ZkError::SessionEnded), _)
                | (_, Err(ZkError::SessionEnded))
                | (Ok(()), Err(ZkError::NoNode)) => return,
                (Err(ZkError::Ambiguous(_)), _) | (_, Err(ZkError::Ambiguous(_)))
                    if self.live.ended.is_cancelled() =>
                {
                    return;
                }
                (Err(fault), _) | (_, Err(fault)) => {
                    debug!(%fault, parent = self.display_path(&self.parent), "looking again for what is left");
                    sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    /// Records that the lock node is gone. If it was the `last` one, the parent is gone as well.
    pub(crate) fn mark_lock_node_removed(&self, last: bool) {
        if last {
            self.live.registry.parents.mark_absent(&self.parent);
        }
    }

    /// Deletes the node until it is known to be gone, or its session was given up; until then the next holder waits.
    /// The last contender to leave removes the parent, too, unless the key comes back often. Most keys are used once,
    /// and the server alone removes no more than 167 empty parents per second.
    pub(crate) async fn remove_node(&self, name: &str) {
        let path = self.path(name);
        let keeps = self.decide_keep_parent();
        while !self.live.registry.is_closing() {
            let last = !keeps && self.is_only_contender();
            let removed = match last {
                true => self.remove_with_parent(&path).await,
                false if keeps => self.remove_below_retained(name, &path).await,
                false => self.live.client.delete(&path).await,
            };
            match removed {
                Ok(()) | Err(ZkError::NoNode | ZkError::SessionEnded) => return,
                Err(ZkError::Ambiguous(_)) => match self.pause_before_retry().await {
                    Ok(()) => {}
                    Err(_over) => return,
                },
                Err(_) if last => self.mark_contended(),
                Err(fault) => {
                    warn!(%fault, path = self.display_path(&path), "the lock node could not be removed yet");
                    sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    /// Removes the node and keeps the parent. After a lost answer this can be sent again, because the name of the node
    /// is unique.
    async fn remove_below_retained(&self, name: &str, path: &str) -> Result<(), ZkError> {
        let removed =
            self.live.delete_child(DeleteChild { path: path.to_owned(), parent: self.parent.clone() });
        // Recorded before the answer: an attempt of this session that begins now is sent behind this request, so it can
        // already use the retained parent.
        let next = i64::from(self.sequence(name)) + 1;
        self.live.registry.parents.kept.insert(self.mark, &self.parent, next, self.live.clock.now());
        removed.await.map_err(|failed| failed.fault)
    }

    /// Removes node and parent in one transaction. The server refuses it if another node is below the parent, so a
    /// parent only goes when it is empty. That is why tokens grow from one parent of a key to the next. A contender
    /// that comes too late for the old parent creates a new one.
    ///
    /// A parent in which a holder has written its grant record stays: the next holder needs the record.
    ///
    /// After a lost answer the transaction is sent again. If the first one was done, the own node, whose name is
    /// unique, is missing. Then the second one is refused, and a parent that other contenders have created since is not
    /// touched.
    async fn remove_with_parent(&self, path: &str) -> Result<(), ZkError> {
        let last = DeleteWithParent {
            path: path.to_owned(),
            parent: self.parent.clone(),
            version: UNWRITTEN_VERSION,
        };
        let removed = self.live.delete_with_parent(last);
        // Recorded before the answer: an attempt of this session that begins now is sent behind this, and has to create
        // a new parent.
        self.mark_lock_node_removed(true);
        match removed.await {
            Ok(()) => Ok(()),
            // `NoNode` of the parent says nothing about the lock node, so the caller must not take the lock node for
            // gone.
            Err(MultiError { step: Some(1), fault: ZkError::NoNode }) => Err(ZkError::NotEmpty),
            Err(MultiError { fault, .. }) => {
                if fault == ZkError::NotEmpty {
                    self.live.registry.parents.mark_present(&self.parent);
                }
                Err(fault)
            }
        }
    }
}
