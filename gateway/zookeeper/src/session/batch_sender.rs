//! Sends the nodes of several keys to ZooKeeper in shared transactions.
//!
//! A key that is mostly free costs two transactions for each lock: one creates its node, and its parent if there is
//! none; one removes them. No other contender waits for either. So while some transactions are in flight, new
//! operations are collected, and are sent as one transaction when an answer arrives. If none is in flight, an operation
//! is sent at once. There is no timer.
//!
//! A shared transaction does all its operations or none. If it did none, each operation is sent again by itself, and
//! its caller gets the answer to that. No transaction creates two nodes of one key, so no two tokens of a key share a
//! czxid.

use std::{collections::HashSet, future::Future, rc::Rc};

use futures_util::{
    FutureExt,
    future::{OptionFuture, join_all},
};
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    active_session::ActiveSession,
    batch::{
        CreateChild, CreateParentAndFirstChild, DeleteChild, DeleteWithParent, PendingZkOp, ZkBatchOp,
        ZkBatchOpResult,
    },
    client::{CreatedNode, MultiError, NodeCreateMode, NodeStat, ZkClient, ZkError},
};

/// How many transactions of a session may be in flight before further operations are collected. With one, more keys
/// would share each. With two, a few keys need not wait, and a server that waits for its disk already has the next
/// transaction.
const MAX_IN_FLIGHT: usize = 2;

/// A node that was created below an existing parent.
#[derive(Debug)]
pub struct CreatedChild {
    pub stat: NodeStat,
    pub path: String,
    /// All nodes below the parent, read when this one existed; `None` if they could not be read.
    pub children: Option<Vec<String>>,
}

impl<L: ZkClient> ActiveSession<L> {
    /// Creates a key's first node. If the node's czxid cannot be read, the answer counts as lost.
    ///
    /// The operation is sent even if the future is dropped.
    pub fn create_with_parent(
        self: &Rc<Self>,
        node: CreateParentAndFirstChild,
    ) -> impl Future<Output = Result<NodeStat, MultiError>> + use<L> {
        let answer = self.enqueue(ZkBatchOp::CreateWithParent(node));
        async { answer.await?.stat.ok_or_else(|| lost_reply_error("it was made, and not seen")) }
    }

    /// Creates a node below an existing parent, and lists its siblings. If the node's czxid cannot be read, the answer
    /// counts as lost.
    ///
    /// The operation is sent even if the future is dropped.
    pub fn create_child(
        self: &Rc<Self>,
        node: CreateChild,
    ) -> impl Future<Output = Result<CreatedChild, MultiError>> + use<L> {
        let answer = self.enqueue(ZkBatchOp::CreateChild(node));
        async {
            let ZkBatchOpResult { stat: seen, made, children } = answer.await?;
            let (Some(seen), Some(path)) = (seen, made) else {
                return Err(lost_reply_error("it was made, and not seen"));
            };
            Ok(CreatedChild { stat: seen, path, children })
        }
    }

    /// Removes a node. Its parent stays.
    ///
    /// The operation is sent even if the future is dropped.
    pub fn delete_child(
        self: &Rc<Self>,
        node: DeleteChild,
    ) -> impl Future<Output = Result<(), MultiError>> + use<L> {
        let answer = self.enqueue(ZkBatchOp::DeleteChild(node));
        async { answer.await.map(drop) }
    }

    /// Removes a key's last node and its parent, or neither.
    ///
    /// The operation is sent even if the future is dropped.
    pub fn delete_with_parent(
        self: &Rc<Self>,
        node: DeleteWithParent,
    ) -> impl Future<Output = Result<(), MultiError>> + use<L> {
        let answer = self.enqueue(ZkBatchOp::DeleteWithParent(node));
        async { answer.await.map(drop) }
    }

    fn enqueue(
        self: &Rc<Self>,
        part: ZkBatchOp,
    ) -> impl Future<Output = Result<ZkBatchOpResult, MultiError>> + use<L> {
        let (answer, answered) = oneshot::channel();
        let collected = &self.batch_queue;
        let number = collected.next.replace(collected.next.get() + 1);
        collected.open.borrow_mut().insert(number);
        collected.waiting.borrow_mut().push_back(PendingZkOp { part, answer, number });
        send_queued_batches(self);
        async { answered.await.unwrap_or_else(|_| Err(lost_reply_error("nobody has heard it"))) }
    }
}

/// Sends collected operations, up to [`MAX_IN_FLIGHT`] transactions. Each future is polled once here, so that its
/// transaction is sent at once.
fn send_queued_batches<L: ZkClient>(live: &Rc<ActiveSession<L>>) {
    let collected = &live.batch_queue;
    while collected.under_way.get() < MAX_IN_FLIGHT && !collected.waiting.borrow().is_empty() {
        let under_way = InFlightBatch::track_in_flight_batch(live);
        let parts = collected.take_batch();
        let mut sent = Box::pin(async move {
            send(&under_way.0, parts).await;
            under_way
        });
        if sent.as_mut().now_or_never().is_none() {
            drop(spawn_local(async move {
                let live = sent.await.0.clone();
                send_queued_batches(&live);
            }));
        }
    }
}

/// One transaction in flight.
struct InFlightBatch<L: ZkClient>(Rc<ActiveSession<L>>);

impl<L: ZkClient> InFlightBatch<L> {
    fn track_in_flight_batch(live: &Rc<ActiveSession<L>>) -> Self {
        live.batch_queue.under_way.set(live.batch_queue.under_way.get() + 1);
        Self(live.clone())
    }
}

impl<L: ZkClient> Drop for InFlightBatch<L> {
    fn drop(&mut self) {
        let collected = &self.0.batch_queue;
        collected.under_way.set(collected.under_way.get() - 1);
        if std::thread::panicking() {
            // The operations that still wait are never sent. Their callers get an ambiguous error, and search for their
            // nodes.
            collected.waiting.take();
            collected.open.take();
        }
        collected.answered.notify_waiters();
    }
}

/// Sends these operations, shared or alone. Returns when each is answered.
async fn send<L: ZkClient>(live: &ActiveSession<L>, parts: Vec<PendingZkOp>) {
    let (mut together, alone) = partition_shareable(live, parts);
    let singly = |parts: Vec<PendingZkOp>| join_all(parts.into_iter().map(|one| send_single(live, one)));
    let mut shared = Vec::new();
    while !together.is_empty() {
        let share = together.drain(..live.batch_queue.op_limit().min(together.len())).collect();
        shared.push(async { singly(send_shared(live, share).await).await });
    }
    // The shared transactions are sent first: an operation that goes alone may be a second node of a key whose first
    // one is in them.
    tokio::join!(join_all(shared), singly(alone));
}

/// Divides the operations into shared and single ones. A second node of a key, and every operation at a disputed key,
/// is sent alone.
fn partition_shareable<L: ZkClient>(
    live: &ActiveSession<L>,
    parts: Vec<PendingZkOp>,
) -> (Vec<PendingZkOp>, Vec<PendingZkOp>) {
    let mut firsts = HashSet::new();
    let alone: Vec<bool> = parts
        .iter()
        .map(|op| {
            let second = op.part.created_path().is_some() && !firsts.insert(op.part.parent());
            second || live.registry.parents.is_disputed(op.part.parent())
        })
        .collect();
    drop(firsts);
    let mut together = Vec::with_capacity(parts.len());
    let mut apart = Vec::new();
    for (op, alone) in parts.into_iter().zip(alone) {
        if alone { apart.push(op) } else { together.push(op) }
    }
    (together, apart)
}

/// Sends the operations in one transaction. Returns the operations that have to be sent singly: all if the server
/// refused one, or if there is only one; else none.
async fn send_shared<L: ZkClient>(live: &ActiveSession<L>, parts: Vec<PendingZkOp>) -> Vec<PendingZkOp> {
    if parts.len() == 1 {
        return parts;
    }
    let answers = transact(live, &parts).await;
    let refused = match &answers {
        Ok(_) | Err(MultiError { fault: ZkError::Ambiguous(_) | ZkError::SessionEnded, .. }) => None,
        Err(failed) => Some(failed.step),
    };
    live.metrics.record_shared_transaction(refused.is_none());
    live.batch_queue.adapt_batch_limit(refused.is_none());
    if let Some(step) = refused {
        // A node that is already gone does not make its key disputed: an earlier removal was done, and its answer was
        // lost.
        let one = step.and_then(|step| op_at(&parts, step));
        if let Some(one) = one.filter(|one| !matches!(one.part, ZkBatchOp::DeleteChild(_))) {
            live.registry.parents.mark_disputed(one.part.parent());
        }
        return parts;
    }
    match answers {
        Ok(answers) => {
            for (op, done) in parts.into_iter().zip(answers) {
                live.batch_queue.complete(op, Ok(done));
            }
        }
        // The error names no step, because it is about the whole request and not about one operation.
        Err(failed) => {
            for op in parts {
                live.batch_queue.complete(op, Err(MultiError { step: None, ..failed.clone() }));
            }
        }
    }
    Vec::new()
}

/// The operation to which a step of the transaction belongs.
fn op_at(parts: &[PendingZkOp], step: usize) -> Option<&PendingZkOp> {
    let mut end = 0;
    parts.iter().find(|op| {
        end += op.part.op_count();
        step < end
    })
}

async fn send_single<L: ZkClient>(live: &ActiveSession<L>, op: PendingZkOp) {
    let answer = match &op.part {
        // The answer to a single create has the czxid, in all versions of the server, so nothing else has to be read
        // for it.
        ZkBatchOp::CreateChild(next) => create_alone(live, next).await,
        _ => {
            let answer = transact(live, std::slice::from_ref(&op)).await;
            answer.map(|answers| answers.into_iter().next().unwrap_or_default())
        }
    };
    if answer.is_ok() && matches!(op.part, ZkBatchOp::CreateWithParent(_) | ZkBatchOp::CreateChild(_)) {
        live.registry.parents.clear_disputed(op.part.parent());
    }
    live.batch_queue.complete(op, answer);
}

async fn create_alone<L: ZkClient>(
    live: &ActiveSession<L>,
    next: &CreateChild,
) -> Result<ZkBatchOpResult, MultiError> {
    let created = live.client.create(&next.requested, &next.says, NodeCreateMode::EphemeralSequential);
    let children = live.client.children(&next.parent);
    let (created, children) = tokio::join!(created, children);
    let CreatedNode { stat: seen, sequence } = created.map_err(|fault| MultiError { step: None, fault })?;
    let made = Some(format!("{}{sequence:010}", next.requested));
    Ok(ZkBatchOpResult { stat: Some(seen), made, children: children.ok() })
}

/// Sends the operations in one transaction, with the reads that belong to it. All nodes that it creates have the same
/// czxid and owner. Servers before 3.9 leave both out of their answer, so one node is read directly after the
/// transaction.
async fn transact<L: ZkClient>(
    live: &ActiveSession<L>,
    parts: &[PendingZkOp],
) -> Result<Vec<ZkBatchOpResult>, MultiError> {
    let mut steps = Vec::new();
    let mut lists = Vec::new();
    for op in parts {
        op.part.append_to(&mut steps);
        lists.extend(op.part.listed_parent());
    }
    let expected = parts.iter().find_map(|op| op.part.created_path());
    let committed = live.client.commit(&steps);
    let seen = OptionFuture::from(expected.map(|path| live.client.stat(path)));
    let listed = OptionFuture::from((!lists.is_empty()).then(|| live.client.children_of(&lists)));
    let (committed, seen, listed) = tokio::join!(committed, seen, listed);
    let mut paths = committed?.into_iter();
    let mut listed = listed.and_then(Result::ok).unwrap_or_default().into_iter();
    let mut answers: Vec<_> = parts
        .iter()
        .map(|PendingZkOp { part, .. }| {
            let last = part.op_count() - 1;
            // A step that creates nothing has no path.
            let made = paths.nth(last).flatten();
            ZkBatchOpResult {
                stat: None,
                made,
                children: part.listed_parent().and_then(|_| listed.next().flatten()),
            }
        })
        .collect();
    let mut seen = seen.and_then(Result::ok).flatten();
    if let (None, Some(made)) = (seen, answers.iter().find_map(|done| done.made.as_deref())) {
        // The server assigned another sequence number than expected, so the node is read by its real path.
        seen = live.client.stat(made).await.ok().flatten();
    }
    answers.iter_mut().for_each(|done| done.stat = seen);
    Ok(answers)
}

fn lost_reply_error(why: &str) -> MultiError {
    MultiError { step: None, fault: ZkError::Ambiguous(why.to_owned()) }
}
