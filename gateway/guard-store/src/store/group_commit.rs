//! Group commit: the changes of many requests go into one transaction.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    time::Instant,
};

use fencegate_process::failpoint;
use tokio::sync::{Notify, watch};
use tracing::error;

use super::{GuardStore, StoreMutation};
use crate::metrics::GuardMetrics;

/// Accepts changes from any thread, in order, and reports when they are durable.
#[derive(Clone)]
pub struct CommitQueueHandle {
    queue: Arc<CommitQueue>,
    durable: watch::Receiver<DurabilityProgress>,
}

#[derive(Default)]
struct CommitQueue {
    waiting: Mutex<CommitQueueState>,
    more: Condvar,
    /// Notifies a committer that runs without a thread of its own.
    asked: Notify,
    /// The number of the last durable change, readable without the lock. Most callers wait for a change that has been
    /// durable for long. 0: there is none, or the store has failed.
    durable: AtomicU64,
}

#[derive(Default)]
struct CommitQueueState {
    changes: VecDeque<StoreMutation>,
    /// The number of the last change in the queue.
    last: u64,
    closed: bool,
}

/// The progress of durability.
#[derive(Debug, Clone)]
enum DurabilityProgress {
    UpTo(u64),
    Never(Arc<str>),
}

/// The store has failed. Its contents are not known any more, so nothing that depends on it may go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommitError(pub Arc<str>);

/// A position in the order of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CommitSeq(u64);

#[cfg(test)]
impl CommitSeq {
    pub fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Commits the queued changes: on a thread of its own, or step by step, when a simulation calls it.
pub struct CommitLoop {
    line: Arc<CommitQueue>,
    durable_sender: watch::Sender<DurabilityProgress>,
    store: Arc<dyn GuardStore>,
    metrics: GuardMetrics,
}

/// Whether more changes may be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLoopState {
    Maybe,
    /// The store has failed, or the queue is closed and all of it is committed.
    Never,
}

impl CommitQueueHandle {
    /// A queue, and the loop that commits its changes. Nothing is durable before the [`CommitLoop`] runs.
    pub fn new(store: Arc<dyn GuardStore>, metrics: GuardMetrics) -> (Self, CommitLoop) {
        let line = Arc::<CommitQueue>::default();
        let (say, durable) = watch::channel(DurabilityProgress::UpTo(0));
        let commits = CommitLoop { line: line.clone(), durable_sender: say, store, metrics };
        (Self { queue: line, durable }, commits)
    }

    /// Puts changes at the end of the queue, and returns their position. Without changes it returns the position
    /// of the last change.
    pub fn submit(&self, changes: Vec<StoreMutation>) -> CommitSeq {
        let mut waiting = self.queue.lock();
        if !changes.is_empty() {
            waiting.last += 1;
            waiting.changes.extend(changes);
            self.queue.more.notify_one();
            self.queue.asked.notify_one();
        }
        CommitSeq(waiting.last)
    }

    /// Returns when everything up to `moment` is durable.
    pub async fn wait_durable(&self, moment: CommitSeq) -> Result<(), CommitError> {
        // Read without the lock, so that requests of an announced tenure never wait for it.
        let reached = self.queue.durable.load(Acquire);
        if reached > 0 && reached >= moment.0 {
            return Ok(());
        }
        let mut durable = self.durable.clone();
        let reached = durable.wait_for(|durable| match durable {
            DurabilityProgress::UpTo(last) => *last >= moment.0,
            DurabilityProgress::Never(_) => true,
        });
        match reached.await.as_deref() {
            Ok(DurabilityProgress::UpTo(_)) => Ok(()),
            Ok(DurabilityProgress::Never(reason)) => Err(CommitError(reason.clone())),
            Err(_closed) => Err(CommitError("the store has been closed".into())),
        }
    }

    /// Returns when the store has failed.
    pub async fn wait_for_failure(&self) -> CommitError {
        let mut durable = self.durable.clone();
        match durable.wait_for(|durable| matches!(durable, DurabilityProgress::Never(_))).await.as_deref() {
            Ok(DurabilityProgress::Never(reason)) => CommitError(reason.clone()),
            // The queue was closed by its owner, so the store cannot fail any more.
            _ if self.queue.lock().closed => std::future::pending().await,
            _ => CommitError("the store's thread has panicked".into()),
        }
    }

    /// Accepts no more changes. Those in the queue are still committed.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.more.notify_one();
        self.queue.asked.notify_one();
    }
}

impl CommitLoop {
    /// Commits all submitted changes, until no more can come. Blocks the calling thread.
    pub fn run(self) {
        while self.commit_pending() == CommitLoopState::Maybe {
            self.line.block_until_changes();
        }
    }

    /// Returns when something may have been submitted since the last turn, or the queue was closed.
    pub async fn wait_for_changes(&self) {
        self.line.asked.notified().await;
    }

    /// Commits the present changes, in one transaction.
    pub fn commit_pending(&self) -> CommitLoopState {
        let Some((changes, last)) = self.line.take_all_changes() else {
            return self.line.more_changes_possible();
        };
        failpoint::pass("before_guard_commit");
        let began = Instant::now();
        if let Err(failed) = self.store.commit(&changes) {
            self.line.durable.store(0, Release);
            self.metrics.record_store_error("commit");
            error!(error = %failed, "guard.store_failed");
            self.durable_sender.send_replace(DurabilityProgress::Never(failed.to_string().into()));
            return CommitLoopState::Never;
        }
        self.metrics.observe_store_duration("commit", began.elapsed());
        failpoint::pass("after_guard_commit");
        self.line.durable.store(last, Release);
        self.durable_sender.send_replace(DurabilityProgress::UpTo(last));
        self.line.more_changes_possible()
    }
}

impl CommitQueue {
    /// All queued changes, and the number of the last.
    fn take_all_changes(&self) -> Option<(Vec<StoreMutation>, u64)> {
        let mut waiting = self.lock();
        let last = waiting.last;
        (!waiting.changes.is_empty()).then(|| (waiting.changes.drain(..).collect(), last))
    }

    fn more_changes_possible(&self) -> CommitLoopState {
        let waiting = self.lock();
        if waiting.closed && waiting.changes.is_empty() {
            CommitLoopState::Never
        } else {
            CommitLoopState::Maybe
        }
    }

    /// Returns when there are changes, or none can come any more.
    fn block_until_changes(&self) {
        let mut waiting = self.lock();
        while waiting.changes.is_empty() && !waiting.closed {
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CommitQueueState> {
        // A poisoned lock does no harm: the queue is only appended to or drained.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
