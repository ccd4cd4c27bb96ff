//! Group commit: what many requests want to be durable at the same time goes into one transaction.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::Instant,
};

use fencegate_process::failpoint;
use tokio::sync::watch;
use tracing::error;

use super::{Change, Store};
use crate::metrics::GuardMetrics;

/// Takes changes from any thread, in order, and says when they are durable.
#[derive(Clone)]
pub struct Committer {
    line: Arc<Line>,
    durable: watch::Receiver<Durable>,
}

#[derive(Default)]
struct Line {
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// The number of the last change that is durable, for who asks of one that has been for long: most do. 0: there is none,
    /// or the store has failed and nothing may go on.
    durable: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    changes: VecDeque<Change>,
    /// The number of the last change that was handed in.
    last: u64,
    closed: bool,
}

/// How far the store has come.
#[derive(Debug, Clone)]
enum Durable {
    UpTo(u64),
    Never(Arc<str>),
}

/// The store failed. What it holds is not known any more, so nothing that needs it may go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotDurable(pub Arc<str>);

/// Names a moment in the order of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Committer {
    /// Starts the thread that commits. It ends at the first failure, and after [`Committer::close`].
    pub fn start(
        store: Arc<dyn Store>,
        metrics: GuardMetrics,
    ) -> std::io::Result<(Self, thread::JoinHandle<()>)> {
        let line = Arc::<Line>::default();
        let (say, durable) = watch::channel(Durable::UpTo(0));
        let taken = line.clone();
        let thread = thread::Builder::new().name("store".into()).spawn(move || {
            while let Some((changes, last)) = taken.next() {
                failpoint::pass("before_guard_commit");
                let began = Instant::now();
                if let Err(failed) = store.commit(&changes) {
                    taken.durable.store(0, Release);
                    metrics.store_error("commit");
                    error!(error = %failed, "guard.store_failed");
                    say.send_replace(Durable::Never(failed.to_string().into()));
                    return;
                }
                metrics.stored("commit", began.elapsed());
                failpoint::pass("after_guard_commit");
                taken.durable.store(last, Release);
                say.send_replace(Durable::UpTo(last));
            }
        })?;
        Ok((Self { line, durable }, thread))
    }

    /// Hands changes in, behind all that were handed in before. Without any, the moment of the last one.
    pub fn submit(&self, changes: Vec<Change>) -> Moment {
        let mut waiting = self.line.lock();
        if !changes.is_empty() {
            waiting.last += 1;
            waiting.changes.extend(changes);
            self.line.more.notify_one();
        }
        Moment(waiting.last)
    }

    /// Returns when everything up to `moment` is durable.
    pub async fn durable(&self, moment: Moment) -> Result<(), NotDurable> {
        // Without the lock of those who wait: no request of a tenure that is known waits.
        let reached = self.line.durable.load(Acquire);
        if reached > 0 && reached >= moment.0 {
            return Ok(());
        }
        let mut durable = self.durable.clone();
        let reached = durable.wait_for(|durable| match durable {
            Durable::UpTo(last) => *last >= moment.0,
            Durable::Never(_) => true,
        });
        match reached.await.as_deref() {
            Ok(Durable::UpTo(_)) => Ok(()),
            Ok(Durable::Never(why)) => Err(NotDurable(why.clone())),
            Err(_closed) => Err(NotDurable("the store has been closed".into())),
        }
    }

    /// Returns when the store has failed.
    pub async fn failed(&self) -> NotDurable {
        let mut durable = self.durable.clone();
        match durable.wait_for(|durable| matches!(durable, Durable::Never(_))).await.as_deref() {
            Ok(Durable::Never(why)) => NotDurable(why.clone()),
            // Closed in order: nothing fails any more.
            _ if self.line.lock().closed => std::future::pending().await,
            _ => NotDurable("the store's thread has panicked".into()),
        }
    }

    /// What was handed in is still committed; nothing more is taken.
    pub fn close(&self) {
        self.line.lock().closed = true;
        self.line.more.notify_one();
    }
}

impl Line {
    /// Waits for changes; all that are there, and the number of the last. `None` when closed and empty.
    fn next(&self) -> Option<(Vec<Change>, u64)> {
        let mut waiting = self.lock();
        while waiting.changes.is_empty() {
            if waiting.closed {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        Some((waiting.changes.drain(..).collect(), waiting.last))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked while holding it has left a whole queue: it is only ever appended to or drained.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
