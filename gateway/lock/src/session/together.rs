//! Sends the first and last nodes of several keys to ZooKeeper in shared transactions.
//!
//! A key that is mostly free costs two transactions for each lock: one makes its parent and its node, one removes both.
//! Nobody else waits for either. So while some are on their way, new ones are collected, and go as one transaction when
//! an answer is in. If none is on its way, none waits. There is no timer.
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
    collected::{LeftKey, NewKey, Part, Queued, STEPS},
    link::{Failed, Fault, Link, Seen},
    live::Live,
};

/// How many transactions of a session may be on their way before others are collected. With one, more keys would share
/// each. With two, a few keys need not wait, and a server that waits for its disk already has the next transaction.
const UNDER_WAY: usize = 2;

impl<L: Link> Live<L> {
    /// Makes a key's first node. If the node's czxid cannot be read, the answer counts as lost.
    ///
    /// The part is sent even if the future is dropped.
    pub fn first(self: &Rc<Self>, node: NewKey) -> impl Future<Output = Result<Seen, Failed>> + use<L> {
        let answer = self.ask(Part::First(node));
        async { answer.await?.ok_or_else(|| lost("it was made, and not seen")) }
    }

    /// Removes a key's last node and its parent, or neither.
    ///
    /// The part is sent even if the future is dropped.
    pub fn last(self: &Rc<Self>, node: LeftKey) -> impl Future<Output = Result<(), Failed>> + use<L> {
        let answer = self.ask(Part::Last(node));
        async { answer.await.map(drop) }
    }

    fn ask(self: &Rc<Self>, part: Part) -> impl Future<Output = Result<Option<Seen>, Failed>> + use<L> {
        let (answer, answered) = oneshot::channel();
        let collected = &self.collected;
        let number = collected.next.replace(collected.next.get() + 1);
        collected.open.borrow_mut().insert(number);
        collected.waiting.borrow_mut().push_back(Queued { part, answer, number });
        set_off(self);
        async { answered.await.unwrap_or_else(|_| Err(lost("nobody has heard it"))) }
    }
}

/// Sends collected parts, up to [`UNDER_WAY`] transactions. Each is polled once here, so that it is sent at once.
fn set_off<L: Link>(live: &Rc<Live<L>>) {
    let collected = &live.collected;
    while collected.under_way.get() < UNDER_WAY && !collected.waiting.borrow().is_empty() {
        let under_way = UnderWay::begin(live);
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
struct UnderWay<L: Link>(Rc<Live<L>>);

impl<L: Link> UnderWay<L> {
    fn begin(live: &Rc<Live<L>>) -> Self {
        live.collected.under_way.set(live.collected.under_way.get() + 1);
        Self(live.clone())
    }
}

impl<L: Link> Drop for UnderWay<L> {
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
async fn send<L: Link>(live: &Live<L>, parts: Vec<Queued>) {
    let (mut together, alone) = divided(live, parts);
    let singly = |parts: Vec<Queued>| join_all(parts.into_iter().map(|one| send_one(live, one)));
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
fn divided<L: Link>(live: &Live<L>, parts: Vec<Queued>) -> (Vec<Queued>, Vec<Queued>) {
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
async fn send_all<L: Link>(live: &Live<L>, parts: Vec<Queued>) -> Vec<Queued> {
    if parts.len() == 1 {
        return parts;
    }
    let answer = transact(live, &parts).await;
    let refused = match &answer {
        Ok(_) | Err(Failed { fault: Fault::Ambiguous(_) | Fault::Over, .. }) => None,
        Err(failed) => Some(failed.step),
    };
    live.metrics.sent_together(refused.is_none());
    live.collected.learns(refused.is_none());
    if let Some(step) = refused {
        if let Some(one) = step.and_then(|step| parts.get(step / STEPS)) {
            live.registry.parents.dispute(one.part.parent());
        }
        return parts;
    }
    // The step is left out, because the answer is about the whole request.
    let answer = answer.map_err(|failed| Failed { step: None, ..failed });
    for asked in parts {
        live.collected.tell(asked, answer.clone());
    }
    Vec::new()
}

async fn send_one<L: Link>(live: &Live<L>, asked: Queued) {
    let one = [asked];
    let answer = transact(live, &one).await;
    let [asked] = one;
    if answer.is_ok() && matches!(asked.part, Part::First(_)) {
        live.registry.parents.settle(asked.part.parent());
    }
    live.collected.tell(asked, answer);
}

/// Sends the transaction. All its nodes have the same czxid and owner. Servers before 3.9 do not answer with them, so
/// one node is read directly after.
async fn transact<L: Link>(live: &Live<L>, parts: &[Queued]) -> Result<Option<Seen>, Failed> {
    let steps: Vec<_> = parts.iter().flat_map(|asked| asked.part.steps()).collect();
    let made = parts.iter().find_map(|asked| asked.part.makes());
    let committed = live.link.commit(&steps);
    let seen = OptionFuture::from(made.map(|path| live.link.seen(path)));
    let (committed, seen) = tokio::join!(committed, seen);
    committed.map(|_| seen.and_then(Result::ok).flatten())
}

fn lost(why: &str) -> Failed {
    Failed { step: None, fault: Fault::Ambiguous(why.to_owned()) }
}
