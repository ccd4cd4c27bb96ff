//! Sends the nodes of several keys to ZooKeeper in shared transactions.
//!
//! A key that is mostly free costs two transactions for each lock: one makes its node, and its parent if there is none;
//! one removes them. Nobody else waits for either. So while some are on their way, new ones are collected, and go as
//! one transaction when an answer is in. If none is on its way, none waits. There is no timer.
//!
//! A shared transaction does all its parts or none. If it did none, each part is sent again by itself, and its caller
//! gets the answer to that. No transaction makes two nodes of one key, so no two tokens of a key share a czxid.

use std::{collections::HashSet, future::Future, rc::Rc};

use futures_util::{
    FutureExt,
    future::{OptionFuture, join_all},
};
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    collected::{BatchOp, CreateChild, CreateWithParent, DeleteChild, DeleteWithParent, OpResult, PendingOp},
    link::{CreatedNode, MultiError, NodeKind, NodeStat, ZkClient, ZkError},
    live::ActiveSession,
};

/// How many transactions of a session may be on their way before others are collected. With one, more keys would share
/// each. With two, a few keys need not wait, and a server that waits for its disk already has the next transaction.
const MAX_IN_FLIGHT: usize = 2;

/// A node that was made below a parent that was there.
#[derive(Debug)]
pub struct CreatedChild {
    pub seen: NodeStat,
    pub path: String,
    /// All nodes below the parent, seen when this one was there; `None` if they could not be read.
    pub children: Option<Vec<String>>,
}

impl<L: ZkClient> ActiveSession<L> {
    /// Makes a key's first node. If the node's czxid cannot be read, the answer counts as lost.
    ///
    /// The part is sent even if the future is dropped.
    pub fn first(
        self: &Rc<Self>,
        node: CreateWithParent,
    ) -> impl Future<Output = Result<NodeStat, MultiError>> + use<L> {
        let answer = self.ask(BatchOp::CreateWithParent(node));
        async { answer.await?.seen.ok_or_else(|| lost("it was made, and not seen")) }
    }

    /// Makes a node below a parent that is there, and reads what else is there. If the node's czxid cannot be read, the
    /// answer counts as lost.
    ///
    /// The part is sent even if the future is dropped.
    pub fn next(
        self: &Rc<Self>,
        node: CreateChild,
    ) -> impl Future<Output = Result<CreatedChild, MultiError>> + use<L> {
        let answer = self.ask(BatchOp::CreateChild(node));
        async {
            let OpResult { seen, made, children } = answer.await?;
            let (Some(seen), Some(path)) = (seen, made) else {
                return Err(lost("it was made, and not seen"));
            };
            Ok(CreatedChild { seen, path, children })
        }
    }

    /// Removes a node. Its parent stays.
    ///
    /// The part is sent even if the future is dropped.
    pub fn off(self: &Rc<Self>, node: DeleteChild) -> impl Future<Output = Result<(), MultiError>> + use<L> {
        let answer = self.ask(BatchOp::DeleteChild(node));
        async { answer.await.map(drop) }
    }

    /// Removes a key's last node and its parent, or neither.
    ///
    /// The part is sent even if the future is dropped.
    pub fn last(
        self: &Rc<Self>,
        node: DeleteWithParent,
    ) -> impl Future<Output = Result<(), MultiError>> + use<L> {
        let answer = self.ask(BatchOp::DeleteWithParent(node));
        async { answer.await.map(drop) }
    }

    fn ask(self: &Rc<Self>, part: BatchOp) -> impl Future<Output = Result<OpResult, MultiError>> + use<L> {
        let (answer, answered) = oneshot::channel();
        let collected = &self.collected;
        let number = collected.next.replace(collected.next.get() + 1);
        collected.open.borrow_mut().insert(number);
        collected.waiting.borrow_mut().push_back(PendingOp { part, answer, number });
        set_off(self);
        async { answered.await.unwrap_or_else(|_| Err(lost("nobody has heard it"))) }
    }
}

/// Sends collected parts, up to [`UNDER_WAY`] transactions. Each is polled once here, so that it is sent at once.
fn set_off<L: ZkClient>(live: &Rc<ActiveSession<L>>) {
    let collected = &live.collected;
    while collected.under_way.get() < MAX_IN_FLIGHT && !collected.waiting.borrow().is_empty() {
        let under_way = InFlightBatch::begin(live);
        let parts = collected.take();
        let mut sent = Box::pin(async move {
            send(&under_way.0, parts).await;
            under_way
        });
        if sent.as_mut().now_or_never().is_none() {
            drop(spawn_local(async move {
                let live = sent.await.0.clone();
                set_off(&live);
            }));
        }
    }
}

/// One transaction, on its way.
struct InFlightBatch<L: ZkClient>(Rc<ActiveSession<L>>);

impl<L: ZkClient> InFlightBatch<L> {
    fn begin(live: &Rc<ActiveSession<L>>) -> Self {
        live.collected.under_way.set(live.collected.under_way.get() + 1);
        Self(live.clone())
    }
}

impl<L: ZkClient> Drop for InFlightBatch<L> {
    fn drop(&mut self) {
        let collected = &self.0.collected;
        collected.under_way.set(collected.under_way.get() - 1);
        if std::thread::panicking() {
            // The parts that still wait are never sent. Their callers are told that the answer is lost, and look for
            // their nodes.
            collected.waiting.take();
            collected.open.take();
        }
        collected.answered.notify_waiters();
    }
}

/// Sends these parts, shared or alone. Returns when each is answered.
async fn send<L: ZkClient>(live: &ActiveSession<L>, parts: Vec<PendingOp>) {
    let (mut together, alone) = divided(live, parts);
    let singly = |parts: Vec<PendingOp>| join_all(parts.into_iter().map(|one| send_one(live, one)));
    let mut shared = Vec::new();
    while !together.is_empty() {
        let share = together.drain(..live.collected.room().min(together.len())).collect();
        shared.push(async { singly(send_all(live, share).await).await });
    }
    // The shared transactions are sent first: a part that goes alone may be a second node of a key whose first one is
    // in them.
    tokio::join!(join_all(shared), singly(alone));
}

/// Divides the parts into those that share a transaction and those that go alone. Alone go a second node of a key, and
/// disputed keys.
fn divided<L: ZkClient>(live: &ActiveSession<L>, parts: Vec<PendingOp>) -> (Vec<PendingOp>, Vec<PendingOp>) {
    let mut firsts = HashSet::new();
    let alone: Vec<bool> = parts
        .iter()
        .map(|asked| {
            let second = asked.part.makes().is_some() && !firsts.insert(asked.part.parent());
            second || live.registry.parents.is_disputed(asked.part.parent())
        })
        .collect();
    drop(firsts);
    let (mut together, mut apart) = (Vec::with_capacity(parts.len()), Vec::new());
    for (asked, alone) in parts.into_iter().zip(alone) {
        if alone { apart.push(asked) } else { together.push(asked) }
    }
    (together, apart)
}

/// Sends the parts in one transaction. Returns those that have to be sent singly: all if the server refused one, or if
/// there is only one; else none.
async fn send_all<L: ZkClient>(live: &ActiveSession<L>, parts: Vec<PendingOp>) -> Vec<PendingOp> {
    if parts.len() == 1 {
        return parts;
    }
    let answers = transact(live, &parts).await;
    let refused = match &answers {
        Ok(_) | Err(MultiError { fault: ZkError::Ambiguous(_) | ZkError::SessionEnded, .. }) => None,
        Err(failed) => Some(failed.step),
    };
    live.metrics.sent_together(refused.is_none());
    live.collected.learns(refused.is_none());
    if let Some(step) = refused {
        // A node that is not there to be removed is no dispute: its removal was done before, and the answer was lost.
        let one = step.and_then(|step| part_of(&parts, step));
        if let Some(one) = one.filter(|one| !matches!(one.part, BatchOp::DeleteChild(_))) {
            live.registry.parents.dispute(one.part.parent());
        }
        return parts;
    }
    match answers {
        Ok(answers) => {
            for (asked, done) in parts.into_iter().zip(answers) {
                live.collected.tell(asked, Ok(done));
            }
        }
        // The step is left out, because the answer is about the whole request.
        Err(failed) => {
            for asked in parts {
                live.collected.tell(asked, Err(MultiError { step: None, ..failed.clone() }));
            }
        }
    }
    Vec::new()
}

/// The part that a step of their transaction belongs to.
fn part_of(parts: &[PendingOp], step: usize) -> Option<&PendingOp> {
    let mut end = 0;
    parts.iter().find(|asked| {
        end += asked.part.steps();
        step < end
    })
}

async fn send_one<L: ZkClient>(live: &ActiveSession<L>, asked: PendingOp) {
    let answer = match &asked.part {
        // Its answer has the czxid, in all versions of the server.
        BatchOp::CreateChild(next) => create_alone(live, next).await,
        _ => {
            let answer = transact(live, std::slice::from_ref(&asked)).await;
            answer.map(|answers| answers.into_iter().next().unwrap_or_default())
        }
    };
    if answer.is_ok() && matches!(asked.part, BatchOp::CreateWithParent(_) | BatchOp::CreateChild(_)) {
        live.registry.parents.settle(asked.part.parent());
    }
    live.collected.tell(asked, answer);
}

async fn create_alone<L: ZkClient>(
    live: &ActiveSession<L>,
    next: &CreateChild,
) -> Result<OpResult, MultiError> {
    let created = live.link.create(&next.requested, &next.says, NodeKind::EphemeralSequential);
    let children = live.link.children(&next.parent);
    let (created, children) = tokio::join!(created, children);
    let CreatedNode { seen, sequence } = created.map_err(|fault| MultiError { step: None, fault })?;
    let made = Some(format!("{}{sequence:010}", next.requested));
    Ok(OpResult { seen: Some(seen), made, children: children.ok() })
}

/// Sends the transaction, and the reads that belong to it. All its nodes have the same czxid and owner. Servers before
/// 3.9 do not answer with them, so one node is read directly after.
async fn transact<L: ZkClient>(
    live: &ActiveSession<L>,
    parts: &[PendingOp],
) -> Result<Vec<OpResult>, MultiError> {
    let (mut steps, mut lists) = (Vec::new(), Vec::new());
    for asked in parts {
        asked.part.add_to(&mut steps);
        lists.extend(asked.part.lists());
    }
    let expected = parts.iter().find_map(|asked| asked.part.makes());
    let committed = live.link.commit(&steps);
    let seen = OptionFuture::from(expected.map(|path| live.link.seen(path)));
    let listed = OptionFuture::from((!lists.is_empty()).then(|| live.link.children_of(&lists)));
    let (committed, seen, listed) = tokio::join!(committed, seen, listed);
    let mut paths = committed?.into_iter();
    let mut listed = listed.and_then(Result::ok).unwrap_or_default().into_iter();
    let mut answers: Vec<_> = parts
        .iter()
        .map(|PendingOp { part, .. }| {
            let last = part.steps() - 1;
            // A step that creates nothing has no path.
            let made = paths.nth(last).flatten();
            OpResult { seen: None, made, children: part.lists().and_then(|_| listed.next().flatten()) }
        })
        .collect();
    let mut seen = seen.and_then(Result::ok).flatten();
    if let (None, Some(made)) = (seen, answers.iter().find_map(|done| done.made.as_deref())) {
        // The server gave it another number than we expected.
        seen = live.link.seen(made).await.ok().flatten();
    }
    answers.iter_mut().for_each(|done| done.seen = seen);
    Ok(answers)
}

fn lost(why: &str) -> MultiError {
    MultiError { step: None, fault: ZkError::Ambiguous(why.to_owned()) }
}
