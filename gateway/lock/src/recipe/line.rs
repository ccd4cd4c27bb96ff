//! Waits in line at one key, behind the node directly before. The wait ends early when no caller wants the lock any
//! more, or when all callers were sent on to the holder's gateway.

use std::future::Future;

use fencegate_process::failpoint;

use super::{
    candidate::{NodeAttempt, refused},
    grant::{AttemptObserver, LockAttemptError},
    layout::Rank,
    signpost::{self, NodeDataResult},
};
use crate::not_granted::GrantError;
use crate::{
    reach::HolderRoute,
    session::link::{ZkClient, ZkError},
};

impl<L: ZkClient> NodeAttempt<L> {
    /// Returns when the node holds. The result says whether it had to wait.
    pub async fn stand_in_line(
        &self,
        own: &str,
        mut children: Vec<String>,
        caller: &mut impl AttemptObserver,
    ) -> Result<bool, LockAttemptError> {
        let mut contended = false;
        loop {
            let rank = self.line.rank(&children, own);
            if rank != Rank::Gone && self.line.is_of_permits(&children) {
                return Err(GrantError::PermitsDiffer.into());
            }
            let before = match rank {
                Rank::First => return Ok(contended),
                Rank::Gone => return Err(GrantError::Lost.into()),
                Rank::Behind(before) => self.path(before),
            };
            contended = true;
            caller.stands_behind(self.line.before(&children, own));
            caller.behind()?;
            failpoint::pass("while_waiting");
            let asks = caller.asks_the_way();
            let watched = self.live.link.watch(&before);
            // Read together with the watch, and not after it, so that a caller is sent on one round trip earlier.
            let first = self.line.alone(&children).filter(|_| asks).map(|first| self.path(first));
            let read = first.as_deref().map(|first| self.live.link.data(first));
            match watched.await {
                Ok(gone_or_changed) => tokio::select! {
                    () = gone_or_changed => {}
                    stop = self.left(asks, read, caller) => return Err(stop),
                    () = self.live.over.cancelled() => return Err(GrantError::Lost.into()),
                },
                Err(ZkError::NoNode | ZkError::Ambiguous(_)) => {}
                Err(fault) => return Err(refused(fault).into()),
            }
            if caller.is_gone() {
                return Err(LockAttemptError::CallerGone);
            }
            // The event says that something changed, not that we are first; and our own node may be gone as well.
            children = tokio::select! {
                children = self.list() => children?,
                () = caller.gone() => return Err(LockAttemptError::CallerGone),
            };
        }
    }

    /// Returns when no caller waits here any more: all have gone, or were sent on. `asks`: a caller may be sent on;
    /// `read` then reads the holder's node.
    async fn left(
        &self,
        asks: bool,
        read: Option<impl Future<Output = NodeDataResult>>,
        caller: &mut impl AttemptObserver,
    ) -> LockAttemptError {
        if asks {
            let way = match read {
                Some(read) => signpost::follow(&self.live, read.await).await,
                None => None,
            };
            if let Err(stop) = caller.way(way) {
                return stop;
            }
        }
        loop {
            caller.stirred().await;
            if caller.is_gone() {
                return LockAttemptError::CallerGone;
            }
            // A caller that has come since may be sent on as well, without waiting for the node before us.
            if caller.asks_the_way()
                && let Err(stop) = caller.way(self.way().await)
            {
                return stop;
            }
        }
    }

    /// The way to the gateway that is first now; `None` if it cannot be reached.
    async fn way(&self) -> Option<HolderRoute> {
        let children = self.live.link.children(&self.parent).await.ok()?;
        let first = self.path(self.line.alone(&children)?);
        signpost::follow(&self.live, self.live.link.data(&first).await).await
    }

    /// Waits, after the node holds, until the session is proven: before that a grant is of no use.
    pub async fn proven(&self, caller: &mut impl AttemptObserver) -> Result<(), LockAttemptError> {
        tokio::select! {
            () = self.live.proven() => Ok(()),
            () = caller.gone() => Err(LockAttemptError::CallerGone),
            () = self.live.over.cancelled() => Err(GrantError::Lost.into()),
        }
    }
}
