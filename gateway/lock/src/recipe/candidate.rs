//! One attempt at one key: its name below the key's parent, and the steps that single keys and sets share.

mod node_removal;

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
};
use fencegate_process::{again, failpoint, randomness::Guid};
use tokio::time::sleep;

use super::{foreign_parent, grant_record::GrantRecord, layout::NodeLayout};
use crate::not_granted::GrantError;
use crate::session::{
    link::{MultiOp, NodeKind, NodeStat, ZkClient, ZkError},
    live::ActiveSession,
    paths::Paths,
};

/// One attempt at one key, among all that stand below the key's parent.
pub struct NodeAttempt<L> {
    pub live: Rc<ActiveSession<L>>,
    /// How nodes are called there, and which stands before which.
    pub line: NodeLayout,
    pub parent: String,
    /// The node above `parent`, in our own layout.
    shard: String,
    pub guid: Guid,
    pub mode: Mode,
    /// The first grant record of a new parent, where parents keep one (see [`super::delayed`]); else empty.
    record: Vec<u8>,
    /// Nobody else stood below the parent when we last looked.
    alone: Cell<bool>,
    /// The number of this attempt among those of the session at this parent.
    mark: u64,
}

/// The place where the nodes of a lock stand, and their naming. [`Berth::of`] finds it from the site of a key; it is
/// the same for all attempts at the key.
#[derive(Debug, Clone)]
pub struct QueueLocation {
    line: NodeLayout,
    pub parent: String,
    shard: String,
}

impl QueueLocation {
    /// # Errors
    /// The site has no line, as an exclusive node has none.
    pub fn of(paths: &Paths, key: &ResourceKey, site: &LockSite) -> Result<Self, GrantError> {
        let Some(line) = NodeLayout::of(site) else {
            return Err(GrantError::Service("the lock is a node that nobody stands in line for".into()));
        };
        Ok(Self { line, parent: paths.of_lock(key, site), shard: paths.shard(key) })
    }

    /// Bytes of the longest path that a node can have there.
    pub fn bytes(&self) -> usize {
        self.parent.len() + self.line.name_bytes()
    }
}

/// A lock node of ours.
#[derive(Debug, Clone)]
pub struct LockNode {
    pub name: String,
    pub seen: NodeStat,
}

impl<L: ZkClient> NodeAttempt<L> {
    pub fn new(live: Rc<ActiveSession<L>>, at: &QueueLocation, guid: Guid, mode: Mode) -> Self {
        let QueueLocation { line, parent, shard } = at.clone();
        let mark = live.registry.parents.joins(&parent);
        Self { line, parent, shard, live, guid, mode, record: Vec::new(), alone: Cell::new(false), mark }
    }

    /// Where another attempt at the same key stands.
    pub fn berth(&self) -> QueueLocation {
        QueueLocation { line: self.line, parent: self.parent.clone(), shard: self.shard.clone() }
    }

    /// The name of this attempt's node if the server gives it this number.
    pub fn numbered(&self, sequence: i64) -> String {
        self.line.numbered(self.guid, self.mode, sequence)
    }

    /// The sequence number in the name of a node of ours; the largest of all numbers if the name has none.
    pub fn sequence(&self, name: &str) -> u32 {
        self.line.contender(name).map_or(u32::MAX, |ours| ours.sequence)
    }

    /// Says that the parent keeps a grant record.
    pub(super) fn keeps_record(&mut self) {
        self.record = GrantRecord::clean().bytes();
    }

    /// Data and kind of a parent that we make. A parent with a record has to outlast its last lock node.
    pub(super) fn above(&self) -> (&[u8], NodeKind) {
        let kind = if self.record.is_empty() { NodeKind::Container } else { NodeKind::Persistent };
        (&self.record, kind)
    }

    /// Whether nobody else stood below the parent at our last look, and this session is about to make no other node
    /// there.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.get() && self.live.registry.parents.has_one(self.mark)
    }

    pub(super) fn others_came(&self) {
        self.alone.set(false);
        self.shares_key();
    }

    /// Others have used the key since our last visit, so its parent is not kept.
    pub(super) fn shares_key(&self) {
        self.live.registry.parents.kept.is_shared(self.mark);
    }

    /// The number that the next node below the parent should get, if this session has kept the parent. The parent is
    /// then in use.
    pub(super) fn takes_kept_parent(&self) -> Option<i64> {
        if !self.line.is_native() {
            return None;
        }
        self.live.registry.parents.kept.takes(self.mark)
    }

    /// The parent is not there, although we had kept it.
    pub(super) fn misses_parent(&self) {
        self.live.registry.parents.kept.is_missed(self.mark, self.live.clock.now());
        self.live.registry.parents.is_gone(&self.parent);
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    /// The path to ask for; the server appends the sequence number.
    pub fn requested(&self) -> String {
        self.path(&self.line.requested(self.guid, self.mode))
    }

    /// Remembers from this list that the parent exists, and whether we would be the last to leave it.
    pub fn saw(&self, children: &[String]) {
        self.live.registry.parents.is_there(&self.parent);
        // We never remove a parent that other programs use. One of them may be about to make a node there, and kazoo's
        // `Lock` makes sure of its parent only once.
        self.alone
            .set(self.line.is_native() && self.line.made_by(children, self.guid).len() == children.len());
    }

    /// Makes the nodes above the key's parent; for locks of other programs the parent as well.
    pub async fn create_above(&self) -> Result<(), GrantError> {
        if !self.line.is_native() {
            let kind = foreign_parent::kind(self.line);
            return foreign_parent::make(&self.live, &self.parent, kind).await.map_err(refused);
        }
        match self.live.link.create(&self.shard, b"", NodeKind::Persistent).await {
            Ok(_) | Err(ZkError::NodeExists | ZkError::Ambiguous(_)) => Ok(()),
            Err(ZkError::NoNode) => Err(GrantError::Service(format!(
                "{} is missing; `{}` makes it",
                self.live.paths.locks(),
                again::command(again::CommandTarget::Gateway, "era init")
            ))),
            Err(fault) => Err(refused(fault)),
        }
    }

    /// Removes a parent that we made and then did not use. The server would keep a container that never had a child.
    pub async fn take_parent_back(&self) {
        // The server refuses this if somebody has come since, who then removes the parent, or if the record was
        // written.
        let steps = [MultiOp::Delete { path: &self.parent, version: Some(UNWRITTEN_VERSION) }];
        if self.live.link.commit(&steps).await.is_ok() {
            self.live.registry.parents.is_gone(&self.parent);
        }
    }

    /// Finds out whether a create happened whose answer was lost. `None`: it did not and never will, because after a
    /// reconnect ZooKeeper refuses requests of the session's old connection.
    ///
    /// Adopts the lowest node of ours, and removes all others.
    pub async fn recover(&self) -> Result<Option<(LockNode, Vec<String>)>, GrantError> {
        'anew: loop {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            let (synced, children) = tokio::join!(synced, children);
            let children = match (synced, children) {
                // This arm comes first: without the sync the list may lack nodes that exist.
                (Err(ZkError::Ambiguous(_)), _) | (_, Err(ZkError::Ambiguous(_))) => {
                    self.again().await?;
                    continue;
                }
                (Ok(()), Ok(children)) => children,
                (Ok(()) | Err(ZkError::NoNode), Err(ZkError::NoNode)) => return Ok(None),
                (Err(fault), _) | (_, Err(fault)) => return Err(refused(fault)),
            };
            self.saw(&children);
            let mut adopted = None;
            for name in self.line.made_by(&children, self.guid) {
                match self.live.link.seen(&self.path(name)).await {
                    Ok(Some(seen)) if adopted.is_none() => {
                        adopted = Some(LockNode { name: name.to_owned(), seen })
                    }
                    Ok(Some(_)) => self.remove(name).await,
                    Ok(None) => {}
                    Err(ZkError::Ambiguous(_)) => {
                        self.again().await?;
                        continue 'anew;
                    }
                    Err(fault) => return Err(refused(fault)),
                }
            }
            return Ok(adopted.map(|node| (node, children)));
        }
    }

    /// The children of the parent; an empty list when the parent is gone.
    pub async fn list(&self) -> Result<Vec<String>, GrantError> {
        loop {
            match self.live.link.children(&self.parent).await {
                Ok(children) => {
                    self.saw(&children);
                    return Ok(children);
                }
                Err(ZkError::NoNode) => return Ok(Vec::new()),
                Err(ZkError::Ambiguous(_)) => self.again().await?,
                Err(fault) => return Err(refused(fault)),
            }
        }
    }

    /// Call this before a request whose answer was lost is tried again.
    ///
    /// # Errors
    /// The session was given up. Its client library may have died, and then all operations would fail like this for
    /// ever. The server removes the nodes with the session, and nobody here acts under it any more.
    pub async fn again(&self) -> Result<(), GrantError> {
        if self.live.over.is_cancelled() {
            return Err(GrantError::Lost);
        }
        sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// Returns when no node of this attempt is there, calling `gone` with the key's parent, or when the session is over.
    pub async fn watch_own(&self, gone: &impl Fn(&str)) {
        loop {
            let children = match self.list().await {
                Ok(children) => children,
                Err(GrantError::Lost) => return,
                // The server refuses the watch now, and the node may go unseen meanwhile; so try again.
                Err(_) => {
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
            };
            failpoint::pass("while_watching");
            let Some(own) = self.line.made_by(&children, self.guid).first().map(|name| self.path(name))
            else {
                return gone(&self.parent);
            };
            match self.live.link.watch(&own).await {
                Ok(changed) => changed.await,
                Err(ZkError::NoNode | ZkError::Ambiguous(_)) => sleep(RETRY_PAUSE).await,
                Err(ZkError::SessionEnded) => return,
                Err(_) => sleep(REFUSED_PAUSE).await,
            }
        }
    }

    fn shown(&self, path: &str) -> String {
        self.live.paths.shown(path)
    }
}

impl<L> Drop for NodeAttempt<L> {
    fn drop(&mut self) {
        self.live.registry.parents.parts(self.mark);
    }
}

/// The version of a parent in which no holder has written a record since the parent was made.
pub(super) const UNWRITTEN_VERSION: i32 = 0;

/// Pause before a request whose answer was lost is tried again, so that an immediate error makes no busy loop.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two tries of a request that the server refuses (throttled, or forbidden by an ACL).
pub const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// How often a create begins again because a parent was removed as empty, or made, in between.
pub const CREATE_ROUNDS: usize = 16;

/// From this round on the creates of parent and node are sent directly one after the other. If a key comes and goes all
/// the time, the last answer about its parent is already out of date.
pub const PATIENT_ROUNDS: usize = 4;

/// A definite refusal of the server.
pub fn refused(fault: ZkError) -> GrantError {
    match fault {
        ZkError::SessionEnded => GrantError::Lost,
        other => GrantError::Service(other.to_string()),
    }
}
