//! Waits in the queue of one key, behind the direct predecessor. The wait ends early when no caller wants the lock any
//! more, or when all callers were forwarded to the holder's gateway.

use std::future::Future;

use fencegate_process::failpoint;
use fencegate_zookeeper::{
    error::GrantError,
    peer_endpoint::HolderRoute,
    session::client::{ZkClient, ZkError},
};

use super::{
    find_holder::{self, NodeDataResult},
    grant::{LockAttemptError, LockAttemptObserver},
    layout::QueueRank,
    lock_node::{LockNodeAttempt, definite_error},
};

impl<L: ZkClient> LockNodeAttempt<L> {
    /// Waits until the node holds. Returns whether another contender was ahead.
    pub async fn wait_in_queue(
        &self,
        own: &str,
        mut children: Vec<String>,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<bool, LockAttemptError> {
        let mut contended = false;
        loop {
            let rank = self.layout.queue_rank(&children, own);
            if rank != QueueRank::Gone && self.layout.is_semaphore(&children) {
                return Err(GrantError::PermitsDiffer.into());
            }
            let before = match rank {
                QueueRank::First => return Ok(contended),
                QueueRank::Gone => return Err(GrantError::Lost.into()),
                QueueRank::Behind(before) => self.path(before),
            };
            contended = true;
            caller.on_position(self.layout.nodes_ahead(&children, own));
            caller.on_waiting()?;
            failpoint::pass("while_waiting");
            let asks = caller.wants_forwarding();
            let watched = self.live.client.watch(&before);
            // The holder's node is read together with the watch, and not after it, so that a caller is forwarded one
            // round trip earlier.
            let first = self.layout.sole_holder(&children).filter(|_| asks).map(|first| self.path(first));
            let read = first.as_deref().map(|first| self.live.client.data(first));
            match watched.await {
                Ok(gone_or_changed) => tokio::select! {
                    () = gone_or_changed => {}
                    stop = self.wait_until_no_caller(asks, read, caller) => return Err(stop),
                    () = self.live.ended.cancelled() => return Err(GrantError::Lost.into()),
                },
                Err(ZkError::NoNode | ZkError::Ambiguous(_)) => {}
                Err(fault) => return Err(definite_error(fault).into()),
            }
            if caller.is_closed() {
                return Err(LockAttemptError::CallerGone);
            }
            // The event only means that the node ahead has changed or gone. This attempt's node need not be first, and
            // may be gone.
            children = tokio::select! {
                children = self.list_children() => children?,
                () = caller.closed() => return Err(LockAttemptError::CallerGone),
            };
        }
    }

    /// Returns when no caller waits here any more: all have gone, or were forwarded. `asks`: a caller may be forwarded;
    /// `read` then reads the holder's node.
    async fn wait_until_no_caller(
        &self,
        asks: bool,
        read: Option<impl Future<Output = NodeDataResult>>,
        caller: &mut impl LockAttemptObserver,
    ) -> LockAttemptError {
        if asks {
            let route = match read {
                Some(read) => find_holder::resolve_holder_route(&self.live, read.await).await,
                None => None,
            };
            if let Err(stop) = caller.on_holder_route(route) {
                return stop;
            }
        }
        loop {
            caller.wait_callers_changed().await;
            if caller.is_closed() {
                return LockAttemptError::CallerGone;
            }
            // A caller that came during this wait may be forwarded as well, without waiting for the node ahead.
            if caller.wants_forwarding()
                && let Err(stop) = caller.on_holder_route(self.holder_route().await)
            {
                return stop;
            }
        }
    }

    /// The route to the gateway that is first now; `None` if it cannot be reached.
    async fn holder_route(&self) -> Option<HolderRoute> {
        let children = self.live.client.children(&self.parent).await.ok()?;
        let first = self.path(self.layout.sole_holder(&children)?);
        find_holder::resolve_holder_route(&self.live, self.live.client.data(&first).await).await
    }

    /// Waits, after the node holds, until the session deadline lies ahead: before that a grant is of no use.
    pub async fn wait_session_valid(
        &self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<(), LockAttemptError> {
        tokio::select! {
            () = self.live.wait_session_valid() => Ok(()),
            () = caller.closed() => Err(LockAttemptError::CallerGone),
            () = self.live.ended.cancelled() => Err(GrantError::Lost.into()),
        }
    }
}
