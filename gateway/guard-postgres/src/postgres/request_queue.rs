//! The requests that wait for the database: when the connection is free, all waiting ones go as one statement.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_guard_store::{admission::DispatchEnd, operation::JournalUpdate};
use tokio::sync::{Notify, oneshot};

use super::{
    admit_reply::InFlightDispatch,
    error::PostgresError,
    operation_lock::{OperationLockIdentity, OperationLockReleaser},
    request::{AdmitKind, DbReply, DbRequest},
};

/// The request queue of one instance.
#[derive(Debug, Default)]
pub(super) struct DbRequestQueue {
    waiting: Mutex<DbRequestQueueState>,
    more: Notify,
    idle: Notify,
}

#[derive(Debug, Default)]
struct DbRequestQueueState {
    items: VecDeque<PendingDbRequest>,
    /// The number of requests that were taken out and have no reply yet.
    under_way: usize,
    closed: bool,
}

/// One request, and the caller that waits for its reply.
#[derive(Debug)]
pub(super) struct PendingDbRequest {
    pub(super) item: DbRequest,
    reply: Option<oneshot::Sender<Result<CancelOnDropReply, PostgresError>>>,
    /// Whether the request was sent before, and its reply was lost.
    pub(super) again: bool,
}

/// A reply on its way to its caller. If the caller has gone, the reply is dropped unread, and the registration that
/// it reports is released.
#[derive(Debug)]
pub(super) struct CancelOnDropReply {
    answer: DbReply,
    cancel: Option<CancelOnDrop>,
}

#[derive(Debug)]
struct CancelOnDrop {
    backlog: Arc<DbRequestQueue>,
    item: Option<DbRequest>,
}

/// The most requests in one statement.
pub(super) const MOST_AT_ONCE: usize = 256;

impl DbRequestQueue {
    /// Queues a request behind all others. If the returned receiver is dropped, a registration is released.
    pub(super) fn enqueue(
        &self,
        item: DbRequest,
    ) -> oneshot::Receiver<Result<CancelOnDropReply, PostgresError>> {
        let (reply, answer) = oneshot::channel();
        self.push(PendingDbRequest { item, reply: Some(reply), again: false });
        answer
    }

    /// Sends a request to the database again and again until it has a reply. No caller waits.
    pub(super) fn enqueue_detached(&self, item: DbRequest) {
        self.push(PendingDbRequest { item, reply: None, again: false });
    }

    fn push(&self, pending: PendingDbRequest) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            return pending.fail(&PostgresError::Unreachable("this guard is leaving".into()));
        }
        waiting.items.push_back(pending);
        drop(waiting);
        self.more.notify_one();
    }

    /// The next batch, of at most `most` requests. Requests whose callers have gone, and which were never sent, are
    /// left out. `None` after [`DbRequestQueue::close`], when nothing is left.
    pub(super) async fn next_batch(&self, most: usize) -> Option<Vec<PendingDbRequest>> {
        loop {
            let more = self.more.notified();
            {
                let mut waiting = self.lock();
                while waiting.items.front().is_some_and(PendingDbRequest::is_discardable) {
                    waiting.items.pop_front();
                }
                if !waiting.items.is_empty() {
                    let most = waiting.items.len().min(most);
                    let batch: Vec<_> =
                        waiting.items.drain(..most).filter(|one| !one.is_discardable()).collect();
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

    /// Puts a batch back in front of all other requests, because it was sent before.
    pub(super) fn push_front(&self, batch: Vec<PendingDbRequest>) {
        let mut waiting = self.lock();
        for pending in batch.into_iter().rev() {
            waiting.items.push_front(pending);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Puts the end of a dispatch behind all other requests, which may succeed meanwhile.
    pub(super) fn push_back(&self, end: PendingDbRequest) {
        self.lock().items.push_back(end);
        self.more.notify_one();
    }

    /// Reports to all waiting callers that the database is not reachable. Mandatory requests stay in the queue,
    /// and possible registrations are released.
    pub(super) fn fail_callers(&self, unavailable: &PostgresError) {
        let waiting = std::mem::take(&mut self.lock().items);
        let left: Vec<_> =
            waiting.into_iter().filter_map(|pending| pending.fail_caller(unavailable)).collect();
        self.push_front(left);
    }

    /// Accepts no more requests. Queued ones are still sent.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// Returns when no request is queued or under way.
    pub(super) async fn wait_idle(&self) {
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

    fn lock(&self) -> MutexGuard<'_, DbRequestQueueState> {
        // A poisoned lock does no harm: the queue is only appended to or drained.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingDbRequest {
    /// Whether the request can be left out: its caller has gone, and it was never sent.
    fn is_discardable(&self) -> bool {
        let gone = self.reply.as_ref().is_some_and(oneshot::Sender::is_closed);
        gone && !self.again
            && matches!(self.item, DbRequest::Look { .. } | DbRequest::Reserve(_) | DbRequest::Resolve { .. })
    }

    /// Delivers the reply to the caller. If the caller has gone, a registration is released.
    pub(super) fn deliver(self, answer: DbReply, queue: &Arc<DbRequestQueue>) {
        let registered = matches!(
            (&self.item, &answer),
            (DbRequest::Look { .. }, DbReply::Running) | (DbRequest::Reserve(_), DbReply::Done)
        );
        let Some(reply) = self.reply else { return };
        let back = registered.then(|| CancelOnDrop { backlog: queue.clone(), item: Some(self.item) });
        // If the reply cannot be sent, it is dropped, and the drop releases the registration.
        drop(reply.send(Ok(CancelOnDropReply { answer, cancel: back })));
    }

    /// Reports the failure to the caller. Nothing is left to be sent.
    pub(super) fn fail(self, unavailable: &PostgresError) {
        if let Some(reply) = self.reply {
            // This fails if the caller has gone.
            drop(reply.send(Err(unavailable.clone())));
        }
    }

    /// The database will never accept this request. Reports the failure to the caller, and returns the request that
    /// still has to be sent, because otherwise a key would stay in flight. For the end of a dispatch: the end with
    /// the operation lock released, and nothing written of the operation. For a registration whose first reply was
    /// lost: its release.
    pub(super) fn reject_into_cleanup(mut self, unavailable: &PostgresError) -> Option<Self> {
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Err(unavailable.clone())));
        }
        let item = match self.item {
            DbRequest::Look { .. } | DbRequest::Reserve(_) if self.again => cancelling_request(self.item)?,
            DbRequest::End { dispatch, ended, at_least, operation } => {
                let operation = match operation? {
                    (_, JournalUpdate::Nothing) => None,
                    (lock, JournalUpdate::Entry(_) | JournalUpdate::Forget) => {
                        Some((lock, JournalUpdate::Nothing))
                    }
                };
                DbRequest::End { dispatch, ended, at_least, operation }
            }
            _ => return None,
        };
        Some(Self { item, reply: None, again: self.again })
    }

    /// Whether the request is the end of a dispatch, so that its position in the queue decides nothing.
    pub(super) fn is_dispatch_end(&self) -> bool {
        matches!(self.item, DbRequest::End { .. })
    }

    /// The reply was lost: the request has to be sent again, or, if its caller has gone, be released.
    pub(super) fn retry_or_cancel(self) -> Option<Self> {
        let wanted = !self.reply.as_ref().is_some_and(oneshot::Sender::is_closed);
        match self.item {
            DbRequest::Look { .. } | DbRequest::Reserve(_) if !wanted => {
                Some(Self { item: cancelling_request(self.item)?, reply: None, again: true })
            }
            item => Some(Self { item, reply: self.reply, again: true }),
        }
    }

    /// Reports the failure to the caller. Returns the request that still has to be sent to the database.
    fn fail_caller(mut self, unavailable: &PostgresError) -> Option<Self> {
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Err(unavailable.clone())));
        }
        let item = match self.item {
            DbRequest::Look { .. } | DbRequest::Reserve(_) if self.again => cancelling_request(self.item)?,
            DbRequest::Look { .. } | DbRequest::Reserve(_) | DbRequest::Resolve { .. } => return None,
            said @ (DbRequest::End { .. }
            | DbRequest::Release(_)
            | DbRequest::Write(..)
            | DbRequest::Nothing) => said,
        };
        Some(Self { item, reply: None, again: self.again })
    }
}

impl CancelOnDropReply {
    /// The caller accepts the reply, so a registration stays.
    pub(super) fn accept(mut self) -> DbReply {
        if let Some(back) = &mut self.cancel {
            back.item = None;
        }
        self.answer
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(item) = self.item.take().and_then(cancelling_request) {
            self.backlog.enqueue_detached(item);
        }
    }
}

/// The request that releases a registration, or a possible one. It also removes the entry of the operation, because
/// not a byte was sent.
fn cancelling_request(item: DbRequest) -> Option<DbRequest> {
    match item {
        DbRequest::Look {
            claim,
            name,
            in_hand,
            operation,
            how: AdmitKind::Claim | AdmitKind::Settle | AdmitKind::Pass,
        } => {
            let keys = claim.keys;
            let token = claim.token;
            let mode = claim.mode;
            let dispatch = InFlightDispatch { name, keys, token, mode, _in_hand: in_hand };
            let operation = operation.map(|(lock, _)| (lock, JournalUpdate::Forget));
            Some(DbRequest::End { dispatch, ended: DispatchEnd::Known, at_least: Duration::ZERO, operation })
        }
        DbRequest::Reserve(lock) => Some(DbRequest::Release(lock)),
        _ => None,
    }
}

impl OperationLockReleaser for DbRequestQueue {
    fn release(&self, lock: OperationLockIdentity) {
        self.enqueue_detached(DbRequest::Release(lock));
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::{operation::OperationId, plan::LockMode, token::FencingToken};
    use fencegate_process::randomness::{Guid, SystemRandomness};

    use super::*;
    use crate::postgres::{admit_reply::DispatchName, name_registry::OwnedRowRefCounts};

    fn operation_lock_id() -> OperationLockIdentity {
        OperationLockIdentity::new(
            OperationId::from_bytes([1; 32]),
            Guid::new(&SystemRandomness),
            &Arc::default(),
        )
    }

    /// A reservation whose caller is dropped before it takes the reply is released in the database.
    #[tokio::test]
    async fn reservation_of_dropped_caller_is_released() {
        let queue = Arc::<DbRequestQueue>::default();
        let lock = operation_lock_id();
        let other = operation_lock_id();
        let [heard, unheard] = [lock, other.clone()].map(|lock| queue.enqueue(DbRequest::Reserve(lock)));
        for pending in queue.next_batch(MOST_AT_ONCE).await.expect("two wait") {
            pending.deliver(DbReply::Done, &queue);
        }
        assert_eq!(heard.await.expect("answered").expect("no trouble").accept(), DbReply::Done);
        // The reply has come, and its caller has not accepted it.
        drop(unheard);
        let left = queue.next_batch(MOST_AT_ONCE).await.expect("one is left to say");
        let [PendingDbRequest { item: DbRequest::Release(released), .. }] = &left[..] else {
            panic!("{left:?}")
        };
        assert_eq!(released.holder(), other.holder());
    }

    /// A request whose caller is dropped is not sent; if it may have been sent already, the reservation is released.
    #[tokio::test]
    async fn dropped_caller_sends_nothing_or_releases() {
        let queue = Arc::<DbRequestQueue>::default();
        drop(queue.enqueue(DbRequest::Reserve(operation_lock_id())));
        let asked = operation_lock_id();
        let waits = queue.enqueue(DbRequest::Reserve(asked.clone()));
        let batch = queue.next_batch(MOST_AT_ONCE).await.expect("one waits");
        assert_eq!(batch.len(), 1, "nobody waits for the other");
        drop(waits);
        queue.push_front(batch.into_iter().filter_map(PendingDbRequest::retry_or_cancel).collect());
        queue.fail_callers(&PostgresError::Timeout);
        let left = queue.next_batch(MOST_AT_ONCE).await.expect("it may be registered");
        let [PendingDbRequest { item: DbRequest::Release(released), again: true, .. }] = &left[..] else {
            panic!("{left:?}")
        };
        assert_eq!(released.holder(), asked.holder());
    }

    /// A rejected end is sent again without its journal entry, then without its operation, and then given up.
    #[tokio::test]
    async fn rejected_end_retries_without_journal_entry() {
        let queue = Arc::<DbRequestQueue>::default();
        let names = Arc::<OwnedRowRefCounts>::default();
        let name = Guid::new(&SystemRandomness);
        let dispatch = InFlightDispatch {
            name: DispatchName(name),
            keys: Arc::new([]),
            token: FencingToken::new(1, 0, 1).expect("small"),
            mode: LockMode::Exclusive,
            _in_hand: names.register_row_name(name),
        };
        let told = queue.enqueue(DbRequest::End {
            dispatch,
            ended: DispatchEnd::Known,
            at_least: Duration::ZERO,
            operation: Some((operation_lock_id(), JournalUpdate::Forget)),
        });
        let refused = PostgresError::Timeout;
        let mut pending = queue.next_batch(MOST_AT_ONCE).await.expect("one waits").pop().expect("one");
        pending = pending.reject_into_cleanup(&refused).expect("the key is still in flight");
        assert_eq!(told.await.expect("told").map(CancelOnDropReply::accept), Err(refused.clone()));
        assert!(matches!(&pending.item, DbRequest::End { operation: Some((_, JournalUpdate::Nothing)), .. }));
        pending = pending.reject_into_cleanup(&refused).expect("the key is still in flight");
        assert!(matches!(&pending.item, DbRequest::End { operation: None, .. }));
        assert_eq!(names.row_names_in_use(), [name.to_string()]);
        assert!(pending.reject_into_cleanup(&refused).is_none());
        assert!(names.row_names_in_use().is_empty());
    }
}
