//! What waits to be asked of the database: all that is there goes as one statement when the connection is free.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};

use super::{
    item::{Answer, How, Item},
    look::InFlight,
    right::{GivenBack, RightId},
    unavailable::Unavailable,
};
use crate::{operation::Writing, register::Ended};

/// The backlog of one instance.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: Mutex<Queue>,
    more: Notify,
    idle: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Pending>,
    /// Taken out, and not answered yet.
    under_way: usize,
    closed: bool,
}

/// One thing in the backlog, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) item: Item,
    reply: Option<oneshot::Sender<Result<Answered, Unavailable>>>,
    /// It was asked before, and nobody knows what came of it.
    pub(super) again: bool,
}

/// An answer on its way to who waits for it. Dropped before it was heard, what it registered is taken back: who waited may
/// have gone in the very moment in which it came.
#[derive(Debug)]
pub(super) struct Answered {
    answer: Answer,
    back: Option<TakenBack>,
}

#[derive(Debug)]
struct TakenBack {
    backlog: Arc<Backlog>,
    item: Option<Item>,
}

/// Things in one statement.
const MOST_AT_ONCE: usize = 256;

impl Backlog {
    /// Puts it behind all others; the answer comes by what is returned. Who does not want it any more drops that, and
    /// what was registered is ended.
    pub(super) fn ask(&self, item: Item) -> oneshot::Receiver<Result<Answered, Unavailable>> {
        let (reply, answer) = oneshot::channel();
        self.put(Pending { item, reply: Some(reply), again: false });
        answer
    }

    /// Nobody waits for the answer; it is asked until there is one.
    pub(super) fn tell(&self, item: Item) {
        self.put(Pending { item, reply: None, again: false });
    }

    fn put(&self, pending: Pending) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            return pending.fail(&Unavailable::Unreachable("this guard is leaving".into()));
        }
        waiting.items.push_back(pending);
        drop(waiting);
        self.more.notify_one();
    }

    /// All that waits, at most so many as fit in a statement. What nobody wants any more, and was never asked, is left
    /// out. `None` after [`Backlog::close`], when nothing is left.
    pub(super) async fn next(&self) -> Option<Vec<Pending>> {
        loop {
            let more = self.more.notified();
            {
                let mut waiting = self.lock();
                while waiting.items.front().is_some_and(Pending::is_idle) {
                    waiting.items.pop_front();
                }
                if !waiting.items.is_empty() {
                    let most = waiting.items.len().min(MOST_AT_ONCE);
                    let batch: Vec<_> = waiting.items.drain(..most).filter(|one| !one.is_idle()).collect();
                    waiting.under_way = batch.len();
                    return Some(batch);
                }
                waiting.under_way = 0;
                self.idle.notify_waiters();
                if waiting.closed {
                    return None;
                }
            }
            more.await;
        }
    }

    /// Before everything else: it was asked before.
    pub(super) fn put_back(&self, batch: Vec<Pending>) {
        let mut waiting = self.lock();
        for pending in batch.into_iter().rev() {
            waiting.items.push_front(pending);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// The database cannot be asked: who waits is told so. What must be said stays in the backlog, and what may have
    /// been registered is ended.
    pub(super) fn fail(&self, unavailable: &Unavailable) {
        let waiting = std::mem::take(&mut self.lock().items);
        let left: Vec<_> = waiting.into_iter().filter_map(|pending| pending.given_up(unavailable)).collect();
        self.put_back(left);
    }

    /// Nothing more is taken; what is there is still asked.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// Returns when nothing waits and nothing is under way.
    pub(super) async fn is_idle(&self) {
        loop {
            let idle = self.idle.notified();
            {
                let waiting = self.lock();
                if waiting.items.is_empty() && waiting.under_way == 0 {
                    return;
                }
            }
            idle.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Whoever panicked while holding it has left a whole queue: it is only ever appended to or drained.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Nobody waits for the answer, and no effect of it can be left behind.
    fn is_idle(&self) -> bool {
        let gone = self.reply.as_ref().is_some_and(oneshot::Sender::is_closed);
        gone && !self.again
            && matches!(self.item, Item::Look { .. } | Item::Reserve(_) | Item::Resolve { .. })
    }

    /// The answer reaches who waits for it; where nobody does any more, what it registered is taken back.
    pub(super) fn answered(self, answer: Answer, backlog: &Arc<Backlog>) {
        let registered = matches!(
            (&self.item, &answer),
            (Item::Look { .. }, Answer::Running) | (Item::Reserve(_), Answer::Done)
        );
        let Some(reply) = self.reply else { return };
        let back = registered.then(|| TakenBack { backlog: backlog.clone(), item: Some(self.item) });
        // Not sent, it is dropped.
        drop(reply.send(Ok(Answered { answer, back })));
    }

    /// Who waits hears of it; nothing is left to say.
    pub(super) fn fail(self, unavailable: &Unavailable) {
        if let Some(reply) = self.reply {
            // Nobody waits any more.
            drop(reply.send(Err(unavailable.clone())));
        }
    }

    /// Nobody knows what came of it: it is asked again, or where nobody waits any more taken back.
    pub(super) fn lost(self) -> Option<Self> {
        let wanted = !self.reply.as_ref().is_some_and(oneshot::Sender::is_closed);
        match self.item {
            Item::Look { .. } | Item::Reserve(_) if !wanted => {
                Some(Self { item: undone(self.item)?, reply: None, again: true })
            }
            item => Some(Self { item, reply: self.reply, again: true }),
        }
    }

    /// Who waits hears of it, and what has to be said stays.
    fn given_up(mut self, unavailable: &Unavailable) -> Option<Self> {
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Err(unavailable.clone())));
        }
        let item = match self.item {
            Item::Look { .. } | Item::Reserve(_) if self.again => undone(self.item)?,
            Item::Look { .. } | Item::Reserve(_) | Item::Resolve { .. } => return None,
            said @ (Item::End { .. } | Item::Release(_) | Item::Write(..)) => said,
        };
        Some(Self { item, reply: None, again: self.again })
    }
}

impl Answered {
    /// It was heard.
    pub(super) fn heard(mut self) -> Answer {
        if let Some(back) = &mut self.back {
            back.item = None;
        }
        self.answer
    }
}

impl Drop for TakenBack {
    fn drop(&mut self) {
        if let Some(item) = self.item.take().and_then(undone) {
            self.backlog.tell(item);
        }
    }
}

/// What takes back what was registered, or may have been. The entry of an operation goes with it: not a byte left.
fn undone(item: Item) -> Option<Item> {
    match item {
        Item::Look { claim, name, operation, how: How::Claim | How::Settle | How::Pass } => {
            let dispatch = InFlight { name, keys: claim.keys, token: claim.token, mode: claim.mode };
            let operation = operation.map(|(right, _)| (right, Writing::Forget));
            Some(Item::End { dispatch, ended: Ended::Known, operation })
        }
        Item::Reserve(right) => Some(Item::Release(right)),
        _ => None,
    }
}

impl GivenBack for Backlog {
    fn release(&self, right: RightId) {
        self.tell(Item::Release(right));
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::operation::OperationId;
    use fencegate_process::randomness::{Guid, SystemRandomness};

    use super::*;

    fn right() -> RightId {
        RightId { id: OperationId::of([1; 32]), holder: Guid::new(&SystemRandomness) }
    }

    #[tokio::test]
    async fn what_was_registered_for_somebody_who_goes_away_is_taken_back() {
        let backlog = Arc::<Backlog>::default();
        let (right, other) = (right(), right());
        let [heard, unheard] = [right, other].map(|right| backlog.ask(Item::Reserve(right)));
        for pending in backlog.next().await.expect("two wait") {
            pending.answered(Answer::Done, &backlog);
        }
        assert_eq!(heard.await.expect("answered").expect("no trouble").heard(), Answer::Done);
        // The answer has come, and nobody has looked.
        drop(unheard);
        let left = backlog.next().await.expect("one is left to say");
        let [Pending { item: Item::Release(released), .. }] = &left[..] else { panic!("{left:?}") };
        assert_eq!(*released, other);
    }

    #[tokio::test]
    async fn who_goes_away_before_it_is_asked_asks_nothing_and_afterwards_takes_it_back() {
        let backlog = Arc::<Backlog>::default();
        drop(backlog.ask(Item::Reserve(right())));
        let asked = right();
        let waits = backlog.ask(Item::Reserve(asked));
        let batch = backlog.next().await.expect("one waits");
        assert_eq!(batch.len(), 1, "nobody waits for the other");
        drop(waits);
        backlog.put_back(batch.into_iter().filter_map(Pending::lost).collect());
        backlog.fail(&Unavailable::Late);
        let left = backlog.next().await.expect("it may be registered");
        let [Pending { item: Item::Release(released), again: true, .. }] = &left[..] else {
            panic!("{left:?}")
        };
        assert_eq!(*released, asked);
    }
}
