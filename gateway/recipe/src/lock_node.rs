//! One attempt at one key: its name below the key's parent, and the steps that single keys and sets share.

mod node_removal;

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockLocation, LockMode},
};
use fencegate_process::{command_hint, failpoint, randomness::Guid};
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        active_session::ActiveSession,
        client::{MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkError},
        paths::ZkPaths,
    },
};
use tokio::time::sleep;

use super::{foreign_parent, grant_record::GrantRecord, layout::LockQueueLayout};

/// One attempt at one key, among all attempts below the key's parent.
pub struct LockNodeAttempt<L> {
    pub live: Rc<ActiveSession<L>>,
    /// The names of the lock nodes below the parent, and their order.
    pub layout: LockQueueLayout,
    pub parent: String,
    /// The node above `parent`, in the native layout.
    shard: String,
    pub guid: Guid,
    pub mode: LockMode,
    /// The first grant record of a new parent, where parents keep one (see [`super::delayed_handover`]); else empty.
    record: Vec<u8>,
    /// Whether no other node was below the parent at the last list.
    alone: Cell<bool>,
    /// The hash of the parent, under which the session's parent cache counts this attempt.
    mark: u64,
}

/// The location of a lock's nodes, and their naming. [`LockNodeLocation::for_site`] finds it from the site of a key; it is
/// the same for all attempts at the key.
#[derive(Debug, Clone)]
pub struct LockNodeLocation {
    layout: LockQueueLayout,
    pub parent: String,
    shard: String,
}

impl LockNodeLocation {
    /// Finds the location of the lock nodes of `key`, and their naming.
    ///
    /// # Errors
    /// Returns an error if the site has no queue, as an exclusive node has none.
    pub fn for_site(paths: &ZkPaths, key: &ResourceKey, site: &LockLocation) -> Result<Self, GrantError> {
        let Some(line) = LockQueueLayout::for_site(site) else {
            return Err(GrantError::Service("the lock is a node that nobody stands in line for".into()));
        };
        Ok(Self {
            layout: line,
            parent: paths.lock_parent_path(key, site),
            shard: paths.lock_shard_path(key),
        })
    }

    /// Bytes of the longest path that a lock node can have at this location.
    pub(crate) fn max_node_path_len(&self) -> usize {
        self.parent.len() + self.layout.max_name_len()
    }
}

/// A lock node that an attempt has created.
#[derive(Debug, Clone)]
pub(crate) struct LockNode {
    pub name: String,
    pub stat: NodeStat,
}

impl<L: ZkClient> LockNodeAttempt<L> {
    pub fn new(live: Rc<ActiveSession<L>>, at: &LockNodeLocation, guid: Guid, mode: LockMode) -> Self {
        let LockNodeLocation { layout: line, parent, shard } = at.clone();
        let mark = live.registry.parents.add_attempt(&parent);
        Self {
            layout: line,
            parent,
            shard,
            live,
            guid,
            mode,
            record: Vec::new(),
            alone: Cell::new(false),
            mark,
        }
    }

    /// The location for another attempt at the same key.
    pub fn location(&self) -> LockNodeLocation {
        LockNodeLocation { layout: self.layout, parent: self.parent.clone(), shard: self.shard.clone() }
    }

    /// The name of this attempt's node if the server assigns this sequence number.
    pub fn node_name(&self, sequence: i64) -> String {
        self.layout.node_name(self.guid, self.mode, sequence)
    }

    /// The sequence number in the name of a node of this attempt; the largest number if the name has none.
    pub fn sequence(&self, name: &str) -> u32 {
        self.layout.parse_contender(name).map_or(u32::MAX, |ours| ours.sequence)
    }

    /// Marks the parent as one that keeps a grant record.
    pub(super) fn set_parent_keeps_record(&mut self) {
        self.record = GrantRecord::clean_record().to_bytes();
    }

    /// Data and kind of a parent that this attempt creates. A parent with a record has to outlast its last lock node.
    pub(super) fn parent_data(&self) -> (&[u8], NodeCreateMode) {
        let kind =
            if self.record.is_empty() { NodeCreateMode::Container } else { NodeCreateMode::Persistent };
        (&self.record, kind)
    }

    /// Whether no other node was below the parent at the last list, and this session is about to create no other node
    /// there.
    pub(super) fn is_only_contender(&self) -> bool {
        self.alone.get() && self.live.registry.parents.has_single_attempt(self.mark)
    }

    pub(super) fn mark_contended(&self) {
        self.alone.set(false);
        self.mark_used_by_others();
    }

    /// Records that other sessions have used the key after this session's last visit, so its parent is not retained.
    pub(super) fn mark_used_by_others(&self) {
        self.live.registry.parents.kept.mark_used_by_others(self.mark);
    }

    /// The expected sequence number of the next node below the parent, if this session has retained the parent. The
    /// parent then counts as in use, and is not removed as an unused one.
    pub(super) fn take_retained_parent_sequence(&self) -> Option<i64> {
        if !self.layout.is_native() {
            return None;
        }
        self.live.registry.parents.kept.take_expected_sequence(self.mark)
    }

    /// Records that the parent does not exist, although it was retained.
    pub(super) fn record_missed_parent(&self) {
        self.live.registry.parents.kept.record_missing_parent(self.mark, self.live.clock.now());
        self.live.registry.parents.mark_absent(&self.parent);
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    /// The path to request; the server appends the sequence number.
    pub(crate) fn requested_path(&self) -> String {
        self.path(&self.layout.requested_name(self.guid, self.mode))
    }

    /// Records from this list that the parent exists, and whether this attempt would be the last to leave it.
    pub fn record_children(&self, children: &[String]) {
        self.live.registry.parents.mark_present(&self.parent);
        // A parent that other programs use is never removed. One of them may be about to create a node there, and
        // kazoo's `Lock` ensures its parent only once.
        self.alone.set(
            self.layout.is_native()
                && self.layout.nodes_with_guid(children, self.guid).len() == children.len(),
        );
    }

    /// Creates the nodes above the key's parent. For locks of other programs the parent itself is created, too.
    pub(crate) async fn create_ancestors(&self) -> Result<(), GrantError> {
        if !self.layout.is_native() {
            let kind = foreign_parent::parent_kind(self.layout);
            return foreign_parent::create_missing_ancestors(&self.live, &self.parent, kind)
                .await
                .map_err(definite_error);
        }
        match self.live.client.create(&self.shard, b"", NodeCreateMode::Persistent).await {
            Ok(_) | Err(ZkError::NodeExists | ZkError::Ambiguous(_)) => Ok(()),
            Err(ZkError::NoNode) => Err(GrantError::Service(format!(
                "{} is missing; `{}` makes it",
                self.live.paths.locks_path(),
                command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era init")
            ))),
            Err(fault) => Err(definite_error(fault)),
        }
    }

    /// Removes a parent that this attempt created and then did not use. Otherwise it would stay: the server keeps a
    /// container that never had a child.
    pub(crate) async fn remove_unused_parent(&self) {
        // The server refuses this if another contender has come since, which then removes the parent, or if the record
        // was written.
        let steps = [MultiOp::Delete { path: &self.parent, version: Some(UNWRITTEN_VERSION) }];
        if self.live.client.commit(&steps).await.is_ok() {
            self.live.registry.parents.mark_absent(&self.parent);
        }
    }

    /// Determines whether a create whose answer was lost was done. `None`: it was not done and never will be, because
    /// after a reconnect ZooKeeper refuses requests of the session's old connection.
    ///
    /// Adopts the lowest node of this attempt, and removes all its other nodes.
    pub(crate) async fn recover_created_node(&self) -> Result<Option<(LockNode, Vec<String>)>, GrantError> {
        'anew: loop {
            let synced = self.live.client.sync(&self.parent);
            let children = self.live.client.children(&self.parent);
            let (synced, children) = tokio::join!(synced, children);
            let children = match (synced, children) {
                // This arm comes first: without the sync the list may lack nodes that exist.
                (Err(ZkError::Ambiguous(_)), _) | (_, Err(ZkError::Ambiguous(_))) => {
                    self.pause_before_retry().await?;
                    continue;
                }
                (Ok(()), Ok(children)) => children,
                (Ok(()) | Err(ZkError::NoNode), Err(ZkError::NoNode)) => return Ok(None),
                (Err(fault), _) | (_, Err(fault)) => return Err(definite_error(fault)),
            };
            self.record_children(&children);
            let mut adopted = None;
            for name in self.layout.nodes_with_guid(&children, self.guid) {
                match self.live.client.stat(&self.path(name)).await {
                    Ok(Some(seen)) if adopted.is_none() => {
                        adopted = Some(LockNode { name: name.to_owned(), stat: seen })
                    }
                    Ok(Some(_)) => self.remove_node(name).await,
                    Ok(None) => {}
                    Err(ZkError::Ambiguous(_)) => {
                        self.pause_before_retry().await?;
                        continue 'anew;
                    }
                    Err(fault) => return Err(definite_error(fault)),
                }
            }
            return Ok(adopted.map(|node| (node, children)));
        }
    }

    /// The children of the parent; an empty list when the parent is gone.
    pub async fn list_children(&self) -> Result<Vec<String>, GrantError> {
        loop {
            match self.live.client.children(&self.parent).await {
                Ok(children) => {
                    self.record_children(&children);
                    return Ok(children);
                }
                Err(ZkError::NoNode) => return Ok(Vec::new()),
                Err(ZkError::Ambiguous(_)) => self.pause_before_retry().await?,
                Err(fault) => return Err(definite_error(fault)),
            }
        }
    }

    /// Call this before a request whose answer was lost is retried.
    ///
    /// # Errors
    /// Returns an error if the session was given up. Its client library may have died, and then all operations would
    /// fail like this for ever. The server removes the nodes with the session, and no task here acts under it any more.
    pub async fn pause_before_retry(&self) -> Result<(), GrantError> {
        if self.live.ended.is_cancelled() {
            return Err(GrantError::Lost);
        }
        sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// Returns when no node of this attempt exists, calling `gone` with the key's parent, or when the session is over.
    pub async fn watch_own_node(&self, gone: &impl Fn(&str)) {
        loop {
            let children = match self.list_children().await {
                Ok(children) => children,
                Err(GrantError::Lost) => return,
                // The server refused the list. Meanwhile a removal may go unnoticed, so retry.
                Err(_) => {
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
            };
            failpoint::pass("while_watching");
            let Some(own) =
                self.layout.nodes_with_guid(&children, self.guid).first().map(|name| self.path(name))
            else {
                return gone(&self.parent);
            };
            match self.live.client.watch(&own).await {
                Ok(changed) => changed.await,
                Err(ZkError::NoNode | ZkError::Ambiguous(_)) => sleep(RETRY_PAUSE).await,
                Err(ZkError::SessionEnded) => return,
                Err(_) => sleep(REFUSED_PAUSE).await,
            }
        }
    }

    fn display_path(&self, path: &str) -> String {
        self.live.paths.redacted_path(path)
    }
}

impl<L> Drop for LockNodeAttempt<L> {
    fn drop(&mut self) {
        self.live.registry.parents.remove_attempt(self.mark);
    }
}

/// The version of a parent in which no holder has written a record since the parent was made.
pub(super) const UNWRITTEN_VERSION: i32 = 0;

/// Pause before a request whose answer was lost is retried, so that an immediate error makes no busy loop.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two retries of a request that the server refuses (throttled, or forbidden by an ACL).
pub const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// A create is tried this often: each time its parent may be removed as empty, or created, in between.
pub(crate) const CREATE_ROUNDS: usize = 16;

/// From this round on the creates of parent and node are sent directly one after the other. If a key comes and goes all
/// the time, the last answer about its parent is already out of date.
pub(crate) const PATIENT_ROUNDS: usize = 4;

/// Converts a definite refusal of the server into the error of a grant.
pub(crate) fn definite_error(fault: ZkError) -> GrantError {
    match fault {
        ZkError::SessionEnded => GrantError::Lost,
        other => GrantError::Service(other.to_string()),
    }
}
