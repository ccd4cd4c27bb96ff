//! The nodes: the effect of each operation on them, and ZooKeeper's answers.

use std::collections::{BTreeMap, BTreeSet};

use fencegate_zookeeper::session::client::{CreatedNode, NodeCreateMode, NodeStat, ZkError};

/// All nodes, by path. A write succeeds or fails as a whole. Its changes are returned once, for the watches.
#[derive(Debug)]
pub(super) struct ZnodeTree {
    nodes: BTreeMap<String, Znode>,
    /// The nodes that the transaction in progress has overwritten, the oldest first; `None` for a node that did not
    /// exist.
    overwritten: Vec<(String, Option<Znode>)>,
    changes: Vec<ZnodeChange>,
}

#[derive(Debug, Clone)]
struct Znode {
    data: Vec<u8>,
    owner: ZnodeOwner,
    version: i32,
    /// The transactions that created the node, last wrote its data (`written`), and last created or removed a child
    /// (`populated`).
    made: i64,
    written: i64,
    populated: i64,
    /// The number of children ever created, of any kind, which is the next sequence number. Deletes do not count.
    births: i32,
    children: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZnodeOwner {
    Nobody,
    Container,
    Session(i64),
}

/// A change of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ZnodeChange {
    Made(String),
    Written(String),
    Deleted(String),
}

/// The last transactions that a watcher of a node has to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastChange {
    pub(super) written: i64,
    pub(super) populated: i64,
}

impl Default for ZnodeTree {
    fn default() -> Self {
        let root = Znode::new(ZnodeOwner::Nobody, &[], 0);
        Self { nodes: [("/".to_owned(), root)].into(), overwritten: Vec::new(), changes: Vec::new() }
    }
}

impl ZnodeTree {
    /// Runs one write. If it fails, nothing is changed.
    pub(super) fn atomically<T, E>(&mut self, write: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        self.overwritten.clear();
        let result = write(self);
        if result.is_err() {
            for (path, node) in self.overwritten.drain(..).rev() {
                match node {
                    Some(node) => self.nodes.insert(path, node),
                    None => self.nodes.remove(&path),
                };
            }
            self.changes.clear();
        }
        result
    }

    /// The changes since the last call, in their order.
    pub(super) fn take_changes(&mut self) -> Vec<ZnodeChange> {
        std::mem::take(&mut self.changes)
    }

    /// Creates a node. Returns its path and its stat.
    pub(super) fn create(
        &mut self,
        path: &str,
        data: &[u8],
        kind: NodeCreateMode,
        session: i64,
        zxid: i64,
    ) -> Result<(String, CreatedNode), ZkError> {
        let parent_path = parent(path).to_owned();
        let parent = self.nodes.get(&parent_path).ok_or(ZkError::NoNode)?;
        let (path, sequence) = match kind {
            NodeCreateMode::EphemeralSequential => {
                (format!("{path}{:010}", parent.births), i64::from(parent.births))
            }
            NodeCreateMode::Persistent | NodeCreateMode::Container | NodeCreateMode::Ephemeral => {
                (path.to_owned(), -1)
            }
        };
        if self.nodes.contains_key(&path) {
            return Err(ZkError::NodeExists);
        }
        if matches!(parent.owner, ZnodeOwner::Session(_)) {
            return Err(ZkError::Refused("no children for ephemeral nodes".to_owned()));
        }
        let owner = match kind {
            NodeCreateMode::Persistent => ZnodeOwner::Nobody,
            NodeCreateMode::Container => ZnodeOwner::Container,
            NodeCreateMode::Ephemeral | NodeCreateMode::EphemeralSequential => ZnodeOwner::Session(session),
        };
        let node = Znode::new(owner, data, zxid);
        let seen = node.stat();
        self.remember(&path);
        self.nodes.insert(path.clone(), node);
        let parent = self.edit(&parent_path).expect("found above");
        parent.children.insert(last_segment(&path).to_owned());
        // The server raises the counter only while it can grow: at 2^31 - 1 it stays, and all later children get the
        // same number.
        if let Some(births) = parent.births.checked_add(1) {
            (parent.births, parent.populated) = (births, zxid);
        }
        self.changes.push(ZnodeChange::Made(path.clone()));
        Ok((path, CreatedNode { stat: seen, sequence }))
    }

    pub(super) fn delete(&mut self, path: &str, zxid: i64) -> Result<(), ZkError> {
        let node = self.nodes.get(path).ok_or(ZkError::NoNode)?;
        if !node.children.is_empty() {
            return Err(ZkError::NotEmpty);
        }
        self.remember(path);
        self.nodes.remove(path);
        let parent = self.edit(parent(path)).expect("a node has a parent");
        parent.children.remove(last_segment(path));
        parent.populated = parent.populated.max(zxid);
        self.changes.push(ZnodeChange::Deleted(path.to_owned()));
        Ok(())
    }

    pub(super) fn set(&mut self, path: &str, data: &[u8], zxid: i64) -> Result<(), ZkError> {
        let node = self.edit(path).ok_or(ZkError::NoNode)?;
        node.data = data.to_owned();
        node.version = node.version.wrapping_add(1);
        node.written = zxid;
        self.changes.push(ZnodeChange::Written(path.to_owned()));
        Ok(())
    }

    /// Checks the version of a node. The version -1 matches any.
    pub(super) fn check(&self, path: &str, version: i32) -> Result<(), ZkError> {
        let node = self.nodes.get(path).ok_or(ZkError::NoNode)?;
        if version == -1 || version == node.version { Ok(()) } else { Err(ZkError::BadVersion) }
    }

    pub(super) fn children(&self, path: &str) -> Result<Vec<String>, ZkError> {
        let node = self.nodes.get(path).ok_or(ZkError::NoNode)?;
        Ok(node.children.iter().cloned().collect())
    }

    pub(super) fn stat(&self, path: &str) -> Option<NodeStat> {
        self.nodes.get(path).map(Znode::stat)
    }

    pub(super) fn data(&self, path: &str) -> Result<(Vec<u8>, NodeStat), ZkError> {
        let node = self.nodes.get(path).ok_or(ZkError::NoNode)?;
        Ok((node.data.clone(), node.stat()))
    }

    pub(super) fn last_change(&self, path: &str) -> Option<LastChange> {
        self.nodes.get(path).map(|node| LastChange { written: node.written, populated: node.populated })
    }

    /// The ephemeral nodes of `session` below a prefix. The server compares bytes and not segments: `/a` also finds
    /// `/ab`.
    pub(super) fn ephemerals(&self, session: i64, prefix: &str) -> Vec<String> {
        let owned = self.nodes.iter().filter(|(_, node)| node.owner == ZnodeOwner::Session(session));
        owned.map(|(path, _)| path.clone()).filter(|path| path.starts_with(prefix)).collect()
    }

    /// Containers that had children and have none now. A container that never had a child stays.
    pub(super) fn empty_containers(&self) -> Vec<String> {
        let left =
            |node: &Znode| node.owner == ZnodeOwner::Container && node.births > 0 && node.children.is_empty();
        self.nodes.iter().filter(|(_, node)| left(node)).map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Pretends that `births` children were made under `path`.
    pub(super) fn set_child_count(&mut self, path: &str, births: i32) {
        self.nodes.get_mut(path).expect("the parent exists").births = births;
    }

    fn edit(&mut self, path: &str) -> Option<&mut Znode> {
        self.remember(path);
        self.nodes.get_mut(path)
    }

    fn remember(&mut self, path: &str) {
        self.overwritten.push((path.to_owned(), self.nodes.get(path).cloned()));
    }
}

impl Znode {
    fn new(owner: ZnodeOwner, data: &[u8], zxid: i64) -> Self {
        Self {
            data: data.to_owned(),
            owner,
            version: 0,
            made: zxid,
            written: zxid,
            populated: zxid,
            births: 0,
            children: BTreeSet::new(),
        }
    }

    fn stat(&self) -> NodeStat {
        let owner = match self.owner {
            ZnodeOwner::Nobody | ZnodeOwner::Container => 0,
            ZnodeOwner::Session(id) => id,
        };
        let children = i32::try_from(self.children.len()).expect("few");
        // The clock of this ensemble advances by one with every transaction.
        let created = self.made.unsigned_abs();
        let modified = self.written.unsigned_abs();
        NodeStat { czxid: self.made, owner, version: self.version, created, modified, children }
    }
}

pub(super) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transaction that fails at its last step changes no node and reports no change.
    #[test]
    fn failed_transaction_leaves_no_trace() {
        let mut tree = ZnodeTree::default();
        tree.create("/a", b"old", NodeCreateMode::Persistent, 1, 1).unwrap();
        tree.take_changes();
        let before = format!("{:?}", tree.nodes);
        let failed = tree.atomically(|tree| {
            tree.set("/a", b"new", 2)?;
            tree.create("/a/x-", b"", NodeCreateMode::EphemeralSequential, 1, 2)?;
            tree.delete("/a/x-0000000000", 2)?;
            tree.delete("/a", 2)?;
            tree.create("/a", b"other", NodeCreateMode::Container, 1, 2)?;
            tree.check("/a", 7)
        });
        assert_eq!(failed, Err(ZkError::BadVersion));
        assert_eq!(format!("{:?}", tree.nodes), before);
        assert_eq!(tree.take_changes(), []);
    }

    /// At the largest sequence number every further node gets the same number.
    #[test]
    fn sequence_number_stays_at_maximum() {
        let mut tree = ZnodeTree::default();
        tree.create("/a", b"", NodeCreateMode::Persistent, 1, 1).unwrap();
        tree.set_child_count("/a", i32::MAX - 1);
        let mut next =
            |name: &str| tree.create(name, b"", NodeCreateMode::EphemeralSequential, 1, 2).unwrap().0;
        assert_eq!(next("/a/x-"), "/a/x-2147483646");
        assert_eq!(next("/a/x-"), "/a/x-2147483647");
        assert_eq!(next("/a/y-"), "/a/y-2147483647");
    }
}
