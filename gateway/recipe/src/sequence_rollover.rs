//! Replaces the parent of a key whose queue has used up its sequence numbers; below the new one the numbers begin
//! again. Tokens go on growing, because their epoch comes from a czxid.
//!
//! The server counts children in 31 bits, and then assigns the last number again and again, so several nodes would all
//! look like the first. The limit is far below that. An attempt with a number above the limit removes its node and
//! waits until the parent is empty. Attempts with lower numbers are served as usual.

use fencegate_process::key_redaction;
use fencegate_zookeeper::{
    error::GrantError,
    session::client::{MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
};
use tokio::time::sleep;
use tracing::info;

use super::{
    grant::{LockAttemptError, LockAttemptObserver},
    lock_node::{LockNodeAttempt, definite_error},
};

/// A parent whose numbers are used up.
pub(crate) struct ExhaustedSequenceParent<'a, L> {
    candidate: &'a LockNodeAttempt<L>,
    /// Distinguishes this parent from its successor: versions begin again, a czxid does not.
    czxid: i64,
}

impl<'a, L: ZkClient> ExhaustedSequenceParent<'a, L> {
    /// Reads which parent it is. Call this while a lock node of the attempt is below the parent, so that it cannot be
    /// replaced meanwhile.
    pub(crate) async fn observe_lock_parent(candidate: &'a LockNodeAttempt<L>) -> Result<Self, GrantError> {
        match candidate.live.client.stat(&candidate.parent).await {
            Ok(Some(seen)) => Ok(Self { candidate, czxid: seen.czxid }),
            Ok(None) | Err(ZkError::Ambiguous(_)) => Err(GrantError::Lost),
            Err(fault) => Err(definite_error(fault)),
        }
    }

    /// Returns when the parent is gone or replaced, by this attempt or another one. Remove this attempt's lock node
    /// below the parent before the call.
    pub(crate) async fn wait_parent_replaced(
        self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<(), LockAttemptError> {
        let link = &self.candidate.live.client;
        loop {
            // The watch is set before the removal is tried, so that the end of a child in between is not missed.
            let changed = match link.watch_children(&self.candidate.parent).await {
                Ok((_, changed)) => changed,
                Err(ZkError::NoNode) => return Ok(()),
                Err(ZkError::Ambiguous(_)) => {
                    self.candidate.pause_before_retry().await?;
                    continue;
                }
                Err(fault) => return Err(definite_error(fault).into()),
            };
            if self.try_replace_parent().await? {
                return Ok(());
            }
            caller.on_waiting()?;
            if caller.wants_forwarding() {
                // The contenders that are still below the parent are about to go, so no request is forwarded to them.
                caller.on_holder_route(None)?;
            }
            tokio::select! {
                () = changed => {}
                // The event of the watch may be lost, so look again after a while.
                () = sleep(link.negotiated_timeout()) => {}
                () = caller.closed() => return Err(LockAttemptError::CallerGone),
                () = self.candidate.live.ended.cancelled() => return Err(GrantError::Lost.into()),
            }
        }
    }

    /// Tries to remove the parent; true if it is gone. A removal can only hit an empty parent, so no lock is lost if it
    /// hits a successor.
    async fn try_replace_parent(&self) -> Result<bool, GrantError> {
        let link = &self.candidate.live.client;
        let path = &self.candidate.parent;
        let (data, seen) = match link.data(path).await {
            Ok(read) => read,
            Err(ZkError::NoNode) => return Ok(true),
            Err(ZkError::Ambiguous(_)) => return Ok(false),
            Err(fault) => return Err(definite_error(fault)),
        };
        if seen.czxid != self.czxid {
            return Ok(true);
        }
        if !data.is_empty() {
            // A former policy with `fencing: delay` left a grant record in this parent; it must not be lost.
            return Err(GrantError::KeyLimit(
                "the parent of the key keeps a record, and its numbers are used up",
            ));
        }
        let steps = [
            MultiOp::Delete { path, version: Some(seen.version) },
            MultiOp::Create { path, data: &data, kind: NodeCreateMode::Container },
        ];
        match link.commit(&steps).await {
            Ok(_) => {
                info!(
                    parent =
                        key_redaction::redact_lock_node_path(&self.candidate.live.paths.locks_path(), path),
                    "a full queue was replaced by a new one"
                );
                Ok(true)
            }
            Err(MultiError { fault: ZkError::NoNode | ZkError::BadVersion, .. }) => Ok(true),
            Err(MultiError { fault: ZkError::NotEmpty | ZkError::Ambiguous(_), .. }) => Ok(false),
            Err(MultiError { fault, .. }) => Err(definite_error(fault)),
        }
    }
}
