//! The time in which the resources of one service keep their keys, and the count of its fenced requests.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// One term; plans that leave the keys alone share it.
#[derive(Debug)]
pub struct Term {
    running: TaskTracker,
    open: watch::Sender<bool>,
}

/// A fenced request from the moment at which its plan is known until nothing of it runs any more.
pub type Running = TaskTrackerToken;

/// What has to come before a term is opened.
#[derive(Debug)]
pub struct Opening {
    term: Arc<Term>,
    behind: Vec<Arc<Term>>,
}

impl Term {
    /// Behind nobody.
    pub fn open() -> Arc<Self> {
        Self::begun(true)
    }

    /// Its requests wait until those of the terms before are over.
    pub fn behind(before: Vec<Arc<Self>>) -> (Arc<Self>, Opening) {
        let term = Self::begun(false);
        let opening = Opening { term: term.clone(), behind: before };
        (term, opening)
    }

    fn begun(open: bool) -> Arc<Self> {
        Arc::new(Self { running: TaskTracker::new(), open: watch::Sender::new(open) })
    }

    pub fn runs(&self) -> Running {
        self.running.token()
    }

    pub fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Returns when everything is over that began under other keys.
    pub async fn opened(&self) {
        // The sender is ours, so it does not go before us.
        self.open.subscribe().wait_for(|open| *open).await.ok();
    }

    /// Nothing runs in it, nor in those before it.
    pub fn is_over(&self) -> bool {
        self.is_open() && self.running.is_empty()
    }

    /// Returns when nothing runs in it any more, nor in those before it.
    pub async fn over(&self) {
        self.opened().await;
        self.running.close();
        self.running.wait().await;
    }
}

/// Each once.
pub(super) fn distinct(terms: impl Iterator<Item = Arc<Term>>) -> Vec<Arc<Term>> {
    let mut terms: Vec<Arc<Term>> = terms.collect();
    terms.sort_unstable_by_key(Arc::as_ptr);
    terms.dedup_by_key(|term| Arc::as_ptr(term));
    terms
}

impl Opening {
    /// To be called once no worker takes a request in the terms before any more. Returns when all of them are over.
    pub async fn due(&self) {
        for before in &self.behind {
            before.over().await;
        }
    }

    pub fn open(self) {
        self.term.open.send_replace(true);
    }
}
