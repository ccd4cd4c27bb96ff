//! The nodes of mostly free keys that a session has to create or remove: operations not sent yet, and operations not
//! answered yet.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
};

use tokio::sync::{Notify, oneshot};

use super::client::{MultiError, MultiOp, NodeCreateMode, NodeStat};

/// A key's first node, and its parent, created in one transaction. The node's sequence number is 0, and no other node
/// can be below the parent.
#[derive(Debug)]
pub struct CreateParentAndFirstChild {
    pub parent: String,
    /// The data of the parent; `kind` decides how long the parent stays.
    pub record: Vec<u8>,
    pub kind: NodeCreateMode,
    /// The path to request; the server appends the sequence number.
    pub requested: String,
    /// The path that the node will have.
    pub path: String,
    pub says: Box<[u8]>,
}

/// A node below an existing parent, see [`super::retained_parents`].
#[derive(Debug)]
pub struct CreateChild {
    pub parent: String,
    /// The path to request; the server appends the sequence number.
    pub requested: String,
    /// The path that the node is expected to have. If it gets another one, that costs a further round trip.
    pub expected: String,
    pub says: Box<[u8]>,
}

/// A node that is removed while its parent stays.
#[derive(Debug)]
pub struct DeleteChild {
    pub path: String,
    pub parent: String,
}

/// A key's last node, which is removed together with the parent. The server refuses this if another contender has come.
#[derive(Debug)]
pub struct DeleteWithParent {
    pub path: String,
    pub parent: String,
    /// The version of the parent.
    pub version: i32,
}

#[derive(Debug)]
pub(super) enum ZkBatchOp {
    CreateWithParent(CreateParentAndFirstChild),
    CreateChild(CreateChild),
    DeleteChild(DeleteChild),
    DeleteWithParent(DeleteWithParent),
}

/// The result of an operation that was done.
#[derive(Debug, Clone, Default)]
pub(super) struct ZkBatchOpResult {
    /// The state of one of the nodes that the operation's transaction created.
    pub(super) stat: Option<NodeStat>,
    /// The path of the node that the operation created.
    pub(super) made: Option<String>,
    /// All nodes below the parent of a [`CreateChild`], read when that node existed; `None` if they could not be read.
    pub(super) children: Option<Vec<String>>,
}

/// One operation, and the caller that waits for its answer.
pub(super) struct PendingZkOp {
    pub(super) part: ZkBatchOp,
    pub(super) answer: oneshot::Sender<Result<ZkBatchOpResult, MultiError>>,
    pub(super) number: u64,
}

pub struct ZkBatchQueue {
    pub(super) waiting: RefCell<VecDeque<PendingZkOp>>,
    /// The number of shared transactions in flight.
    pub(super) under_way: Cell<usize>,
    /// The numbers of the operations that are not answered yet.
    pub(super) open: RefCell<BTreeSet<u64>>,
    pub(super) next: Cell<u64>,
    pub(super) answered: Notify,
    /// The current limit of operations in one transaction. It goes down when transactions are refused.
    room: Cell<usize>,
    /// Bytes of the ACL that is sent with each new node.
    acl: usize,
}

/// Bytes of an ACL entry, without the name of its identity.
const PER_IDENTITY: usize = 16;

impl ZkBatchQueue {
    /// `identities`: the other identities in the ACL of each node.
    pub(super) fn new(identities: &[String]) -> Self {
        Self {
            acl: identities.iter().map(|identity| identity.len() + PER_IDENTITY).sum(),
            waiting: RefCell::default(),
            under_way: Cell::default(),
            open: RefCell::default(),
            next: Cell::default(),
            answered: Notify::new(),
            room: Cell::new(MOST_PARTS),
        }
    }
}

/// The most operations of one transaction, and the most bytes of it: far below the megabyte that a server accepts.
const MOST_PARTS: usize = 64;
const MOST_BYTES: usize = 128 * 1024;

/// The limit of operations never goes below this: with single operations it could not be detected that shared
/// transactions succeed again.
const LEAST_PARTS: usize = 2;

impl ZkBatchOp {
    pub(super) fn append_to<'a>(&'a self, steps: &mut Vec<MultiOp<'a>>) {
        let node = |path, data| MultiOp::Create { path, data, kind: NodeCreateMode::EphemeralSequential };
        match self {
            Self::CreateWithParent(first) => steps.extend([
                MultiOp::Create { path: &first.parent, data: &first.record, kind: first.kind },
                node(&first.requested, &first.says),
            ]),
            Self::CreateChild(next) => steps.push(node(&next.requested, &next.says)),
            Self::DeleteChild(off) => steps.push(MultiOp::Delete { path: &off.path, version: None }),
            Self::DeleteWithParent(last) => steps.extend([
                MultiOp::Delete { path: &last.path, version: None },
                MultiOp::Delete { path: &last.parent, version: Some(last.version) },
            ]),
        }
    }

    /// The number of steps that the operation adds to a transaction. The last of them creates the operation's node, if
    /// it creates one.
    pub(super) fn op_count(&self) -> usize {
        match self {
            Self::CreateWithParent(_) | Self::DeleteWithParent(_) => 2,
            Self::CreateChild(_) | Self::DeleteChild(_) => 1,
        }
    }

    pub(super) fn parent(&self) -> &str {
        match self {
            Self::CreateWithParent(CreateParentAndFirstChild { parent, .. })
            | Self::CreateChild(CreateChild { parent, .. })
            | Self::DeleteChild(DeleteChild { parent, .. })
            | Self::DeleteWithParent(DeleteWithParent { parent, .. }) => parent,
        }
    }

    /// The expected path of the node that the operation creates.
    pub(super) fn created_path(&self) -> Option<&str> {
        match self {
            Self::CreateWithParent(first) => Some(&first.path),
            Self::CreateChild(next) => Some(&next.expected),
            Self::DeleteChild(_) | Self::DeleteWithParent(_) => None,
        }
    }

    /// The parent whose nodes have to be listed after the operation.
    pub(super) fn listed_parent(&self) -> Option<&str> {
        match self {
            Self::CreateChild(next) => Some(&next.parent),
            Self::CreateWithParent(_) | Self::DeleteChild(_) | Self::DeleteWithParent(_) => None,
        }
    }

    /// Bytes that the operation adds to a request. `acl`: bytes of the ACL of each node that is created.
    pub(super) fn request_size(&self, acl: usize) -> usize {
        match self {
            Self::CreateWithParent(first) => {
                let names = first.parent.len() + first.requested.len();
                names + first.record.len() + first.says.len() + 2 * acl
            }
            Self::CreateChild(next) => next.parent.len() + next.requested.len() + next.says.len() + acl,
            Self::DeleteChild(off) => off.path.len(),
            Self::DeleteWithParent(last) => last.path.len() + last.parent.len(),
        }
    }
}

impl ZkBatchQueue {
    /// Returns when every operation that was requested until now is answered. Before that, a list of nodes may lack a
    /// node that such an operation creates.
    pub async fn wait_all_answered(&self) {
        let until = self.next.get();
        loop {
            let answered = self.answered.notified();
            if self.open.borrow().first().is_none_or(|number| *number >= until) {
                return;
            }
            answered.await;
        }
    }

    /// The number of operations that may share a transaction.
    pub(super) fn op_limit(&self) -> usize {
        self.room.get()
    }

    /// Adapts the limit after a shared transaction was done, or refused because of one of its operations.
    pub(super) fn adapt_batch_limit(&self, done: bool) {
        let room = self.room.get();
        self.room.set(if done { (room + 1).min(MOST_PARTS) } else { (room / 2).max(LEAST_PARTS) });
    }

    /// Takes the operations of the next transaction.
    pub(super) fn take_batch(&self) -> Vec<PendingZkOp> {
        let mut waiting = self.waiting.borrow_mut();
        let mut bytes = 0;
        let fit = waiting.iter().take(MOST_PARTS).take_while(|op| {
            bytes += op.part.request_size(self.acl);
            bytes <= MOST_BYTES
        });
        let fit = fit.count().max(1).min(waiting.len());
        waiting.drain(..fit).collect()
    }

    pub(super) fn complete(&self, op: PendingZkOp, result: Result<ZkBatchOpResult, MultiError>) {
        self.open.borrow_mut().remove(&op.number);
        // Sending fails if the caller has dropped its future; its attempt then searches for its nodes by itself.
        op.answer.send(result).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending_op(bytes: usize) -> PendingZkOp {
        let part = ZkBatchOp::DeleteWithParent(DeleteWithParent {
            path: "x".repeat(bytes),
            parent: String::new(),
            version: 0,
        });
        PendingZkOp { part, answer: oneshot::channel().0, number: 0 }
    }

    /// A batch is bounded in bytes and in operations; an operation above the bound is sent alone.
    #[test]
    fn batch_is_bounded_and_never_empty() {
        let collected = ZkBatchQueue::new(&[]);
        let sizes = [MOST_BYTES + 1, MOST_BYTES - 1, 1, 1].into_iter().chain([1; MOST_PARTS]);
        collected.waiting.borrow_mut().extend(sizes.map(pending_op));
        let taken = std::iter::from_fn(|| Some(collected.take_batch().len())).take_while(|taken| *taken > 0);
        assert_eq!(taken.collect::<Vec<_>>(), [1, 2, MOST_PARTS, 1]);
    }

    /// The identities of the ACL count toward the size of the batch once for each created node.
    #[test]
    fn acl_size_counts_per_created_node() {
        let collected = ZkBatchQueue::new(&vec!["x509:CN=gateway,O=Example".to_owned(); 1000]);
        for _ in 0..4 {
            let part = ZkBatchOp::CreateWithParent(CreateParentAndFirstChild {
                parent: "/a".into(),
                record: Vec::new(),
                kind: NodeCreateMode::Container,
                requested: "/a/b-".into(),
                path: "/a/b-0000000000".into(),
                says: [].into(),
            });
            collected.waiting.borrow_mut().push_back(PendingZkOp {
                part,
                answer: oneshot::channel().0,
                number: 0,
            });
        }
        assert_eq!(collected.take_batch().len(), 1);
    }

    /// Each refused batch lowers the operation limit down to its minimum; each success raises it up to its maximum.
    #[test]
    fn op_limit_adapts_to_results() {
        let collected = ZkBatchQueue::new(&[]);
        (0..10).for_each(|_| collected.adapt_batch_limit(false));
        assert_eq!(collected.op_limit(), LEAST_PARTS);
        (0..3).for_each(|_| collected.adapt_batch_limit(true));
        assert_eq!(collected.op_limit(), LEAST_PARTS + 3);
        (0..100).for_each(|_| collected.adapt_batch_limit(true));
        assert_eq!(collected.op_limit(), MOST_PARTS);
    }
}
