//! The handover of a key to the next holder if its upstream does not compare tokens. If a holder leaves without
//! recording that its requests are over, the next holder waits for a delay first.
//!
//! The parent of the key keeps a record, see [`super::grant_record`]. A new holder reads it once: *after* the list that
//! grants the key, and *before* its own first write. An earlier read may miss the write of the last holder; a later one
//! may find the reader's own record. Then the new holder writes `held`, in one transaction with a check that its lock
//! node exists, and only then sends a request. A holder writes `clean` only if all requests before it and all its own
//! are over, and in the transaction that removes its node.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use fencegate_process::{clock::BootInstant, display::FormattedDuration, failpoint, key_redaction};
use fencegate_zookeeper::{
    delay_metrics::HandoverDelayEnd,
    error::GrantError,
    session::{
        active_session::ActiveSession,
        client::{MultiError, MultiOp, ZkClient, ZkError},
    },
};
use futures_util::future::join_all;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    grant::{LockAttemptError, LockAttemptObserver},
    grant_record::{GrantRecord, LastTenureState},
    layout::QueueRank,
    lock_node::{LockNodeAttempt, REFUSED_PAUSE, definite_error},
};

/// The state of one attempt with respect to the records of its keys.
#[derive(Debug)]
pub(super) struct DelayedHandover {
    /// How long requests may go on after the end of this attempt; `None` if it sends none.
    delay: Option<Duration>,
    /// Whether the lock nodes of this attempt hold and the requests of earlier holders are over.
    took_over: Cell<bool>,
    /// Whether all requests that were sent under these lock nodes are known to be over.
    known: Cell<bool>,
    /// The names of the lock nodes that hold, in the order of the candidates.
    nodes: RefCell<Vec<String>>,
}

/// The highest sequence number with which a node may hold below a parent that keeps a grant record. Such a parent is
/// replaced only when a holder leaves it clean and no other contender is there. If that never happens, its numbers run
/// out. The limit is well below the last number, which the server would then assign again and again.
pub(super) const LAST_RECORDED: u32 = (1 << 31) - (1 << 20);

/// A lock node that holds its key.
pub(super) struct HeldLockNode<'a, L> {
    pub(super) candidate: &'a LockNodeAttempt<L>,
    pub(super) name: &'a str,
}

/// One grant record, as it was when its key was granted.
struct VersionedGrantRecord {
    record: GrantRecord,
    /// The version of the parent's data: the new record is written to this version only, so the write is refused if
    /// another holder writes first.
    version: i32,
}

impl DelayedHandover {
    pub(super) fn with_handover_delay(delay: Duration) -> Self {
        Self::new(Some(delay))
    }

    pub(super) fn for_record_cleanup() -> Self {
        Self::new(None)
    }

    fn new(delay: Option<Duration>) -> Self {
        let took_over = Cell::new(false);
        let known = Cell::new(true);
        Self { delay, took_over, known, nodes: RefCell::default() }
    }

    /// Takes the keys over from their last holders. The wait for a delay goes on when the callers leave: if a delay is
    /// longer than every caller's patience, no caller would ever get the keys otherwise.
    pub(super) async fn take_over_keys<L: ZkClient>(
        &self,
        held: &[HeldLockNode<'_, L>],
        epoch: u64,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<(), LockAttemptError> {
        let live = &held.first().expect("at least one key").candidate.live;
        // All records are read in one round trip, each after the list that grants its key and before this attempt's own
        // write.
        let found: Vec<_> =
            join_all(held.iter().map(read_record)).await.into_iter().collect::<Result<_, _>>()?;
        failpoint::pass("before_grant_record");
        let owed = found.iter().filter_map(|found| found.record.required_delay()).max();
        // The written delay includes the one that earlier holders left: if this holder ends before it has waited, the
        // next holder sees only this record.
        let delay = self.delay.max(owed).unwrap_or_default();
        if self.delay.is_some() {
            write_record(held, &found, &GrantRecord::held_record(epoch, delay)).await?;
        }
        self.nodes.replace(held.iter().map(|one| one.name.to_owned()).collect());
        if owed.is_some() {
            wait_out_delay(live, live.clock.now() + delay, caller).await?;
            let queues = join_all(held.iter().map(|one| one.candidate.list_children())).await;
            for (HeldLockNode { candidate, name }, children) in held.iter().zip(queues) {
                if candidate.layout.queue_rank(&children?, name) != QueueRank::First {
                    return Err(GrantError::Lost.into());
                }
            }
        }
        self.took_over.set(true);
        Ok(())
    }

    /// Records that from here on a request may be sent whose end is unknown.
    pub(super) fn mark_outcomes_unknown(&self) {
        self.known.set(false);
    }

    /// Records that all requests that were sent under the lock nodes are over.
    pub(super) fn mark_outcomes_known(&self) {
        self.known.set(true);
    }

    /// Whether a clean record may be written: the lock nodes hold, and the next holder need not wait.
    pub(super) fn can_write_clean_record(&self) -> bool {
        self.took_over.get() && self.known.get()
    }

    /// The names of the nodes that hold, in the order of the candidates.
    pub(super) fn node_names(&self) -> Vec<String> {
        self.nodes.borrow().clone()
    }

    /// Resets the state: the record is not about this attempt any more.
    pub(super) fn clear_record_ownership(&self) {
        self.took_over.set(false);
    }
}

/// Reads the grant record of a key that a lock node of this attempt holds.
async fn read_record<L: ZkClient>(held: &HeldLockNode<'_, L>) -> Result<VersionedGrantRecord, GrantError> {
    let LockNodeAttempt { live, parent, .. } = held.candidate;
    loop {
        let (data, seen) = match live.client.data(parent).await {
            Ok(read) => read,
            Err(ZkError::NoNode) => return Err(GrantError::Lost),
            Err(ZkError::Ambiguous(_)) => {
                held.candidate.pause_before_retry().await?;
                continue;
            }
            Err(fault) => return Err(definite_error(fault)),
        };
        return match GrantRecord::parse(&data) {
            Ok(Some(record)) => Ok(VersionedGrantRecord { record, version: seen.version }),
            // This parent was created without a record, as a container that the server removes when it is empty. So
            // this attempt leaves and begins again; the last contender to leave removes the parent.
            Ok(None) => Err(GrantError::Lost),
            Err(error) => {
                let path = key_redaction::redact_lock_node_path(&live.paths.locks_path(), parent);
                Err(GrantError::Service(format!("{path}: {error}")))
            }
        };
    }
}

/// Writes `record` into all parents in one transaction, which fails if one of the lock nodes is gone.
async fn write_record<L: ZkClient>(
    held: &[HeldLockNode<'_, L>],
    found: &[VersionedGrantRecord],
    record: &GrantRecord,
) -> Result<(), GrantError> {
    let data = record.to_bytes();
    let first = held.first().expect("at least one key").candidate;
    let own: Vec<_> = held.iter().map(|one| one.candidate.path(one.name)).collect();
    let places = held.iter().zip(found).zip(&own);
    let steps: Vec<_> = places
        .flat_map(|((one, found), own)| {
            let path = &*one.candidate.parent;
            [
                MultiOp::Check { path: own, version: -1 },
                MultiOp::Check { path, version: found.version },
                MultiOp::Set { path, data: &data },
            ]
        })
        .collect();
    loop {
        match first.live.client.commit(&steps).await {
            Ok(_) => return Ok(()),
            Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                // The parent as it is now only shows whether this write was done; the record of the last holder was
                // read before.
                if is_written(first, record).await? {
                    return Ok(());
                }
            }
            // Another client has removed a lock node of this attempt, so another contender may hold.
            Err(MultiError { fault: ZkError::NoNode | ZkError::BadVersion, .. }) => {
                return Err(GrantError::Lost);
            }
            Err(MultiError { fault, .. }) => return Err(definite_error(fault)),
        }
    }
}

/// Reads whether a write whose answer was lost was done. If it was not, it never will be: after a reconnect ZooKeeper
/// refuses requests of the session's old connection.
async fn is_written<L: ZkClient>(
    first: &LockNodeAttempt<L>,
    record: &GrantRecord,
) -> Result<bool, GrantError> {
    loop {
        first.pause_before_retry().await?;
        let synced = first.live.client.sync(&first.parent);
        let data = first.live.client.data(&first.parent);
        match tokio::join!(synced, data) {
            (Err(ZkError::Ambiguous(_)), _) | (_, Err(ZkError::Ambiguous(_))) => {}
            (Ok(()), Ok((data, _))) => return Ok(data == record.to_bytes()),
            (_, Err(ZkError::NoNode)) => return Err(GrantError::Lost),
            (Err(fault), _) | (_, Err(fault)) => return Err(definite_error(fault)),
        }
    }
}

/// Waits until `until`: the required delay after this attempt's grant, by the clock of this process. No earlier holder
/// sends after that.
async fn wait_out_delay<L: ZkClient>(
    live: &ActiveSession<L>,
    until: BootInstant,
    caller: &mut impl LockAttemptObserver,
) -> Result<(), GrantError> {
    let rest = until.since(live.clock.now());
    info!(rest = %FormattedDuration(rest), "the last holder left without a record of its end: its handover delay is waited for");
    caller.on_delay(until);
    let sitting = live.metrics.delays.start_wait(rest);
    let mut end = HandoverDelayEnd::Interrupted;
    while !live.ended.is_cancelled() && !live.registry.is_closing() {
        let rest = until.since(live.clock.now());
        if rest.is_zero() {
            end = HandoverDelayEnd::WaitedOut;
            break;
        }
        tokio::select! {
            () = sleep(rest) => {}
            () = live.ended.cancelled() => {}
            () = live.registry.wait_closing() => {}
        }
    }
    drop(sitting);
    live.metrics.delays.record_end(end);
    match end {
        HandoverDelayEnd::WaitedOut => Ok(()),
        HandoverDelayEnd::Interrupted => Err(GrantError::Lost),
    }
}

/// Removes a lock node of this attempt and writes `clean`. If no other node is below the parent, the parent is removed
/// instead: a key without a parent was never held, or its last holder left clean. Returns when the node is known to be
/// gone, or its session is over.
///
/// Both steps are one transaction that does nothing if the lock node is gone, because then another contender may hold.
/// So it is safe to send it again after a lost answer, and a parent that other contenders have created meanwhile is not
/// touched.
pub(super) async fn remove_node_and_write_clean<L: ZkClient>(candidate: &LockNodeAttempt<L>, name: &str) {
    let LockNodeAttempt { live, parent, .. } = candidate;
    let path = candidate.path(name);
    let clean = GrantRecord::clean_record().to_bytes();
    loop {
        let last = candidate.is_only_contender();
        let after = if last {
            MultiOp::Delete { path: parent, version: None }
        } else {
            MultiOp::Set { path: parent, data: &clean }
        };
        let steps = [MultiOp::Delete { path: &path, version: None }, after];
        failpoint::pass("before_leaving_clean");
        match live.client.commit(&steps).await {
            Ok(_) => {
                if last {
                    live.registry.parents.mark_absent(parent);
                }
                return;
            }
            Err(
                MultiError { fault: ZkError::SessionEnded, .. }
                | MultiError { step: Some(0), fault: ZkError::NoNode },
            ) => return,
            Err(MultiError { fault: ZkError::Ambiguous(_), .. }) => {
                match candidate.pause_before_retry().await {
                    Ok(()) => {}
                    Err(_over) => return,
                }
            }
            // Another contender has come since the last list, so the parent must stay and get the clean record.
            Err(MultiError { step: Some(1), .. }) if last => candidate.mark_contended(),
            Err(MultiError { fault, .. }) => {
                warn!(%fault, path = key_redaction::redact_lock_node_path(&live.paths.locks_path(), &path), "the lock node could not be removed yet");
                sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

/// Reads the grant record for display; `None` if there is none, or if it cannot be read.
pub async fn read_grant_record<L: ZkClient>(
    live: &ActiveSession<L>,
    parent: &str,
) -> Result<Option<GrantRecord>, ZkError> {
    match live.client.data(parent).await {
        Ok((data, _)) => Ok(GrantRecord::parse(&data).ok().flatten()),
        Err(ZkError::NoNode) => Ok(None),
        Err(fault) => Err(fault),
    }
}

impl GrantRecord {
    /// Whether the next holder has to wait.
    pub fn has_handover_delay(&self) -> bool {
        self.state == LastTenureState::Held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attempt may write a clean record only after it took its keys over and while no outcome is unknown, and not
    /// after a reset.
    #[test]
    fn clean_leave_requires_takeover_and_outcomes() {
        let delayed = DelayedHandover::with_handover_delay(Duration::from_secs(1));
        assert!(!delayed.can_write_clean_record(), "it has taken nothing over");
        delayed.took_over.set(true);
        assert!(delayed.can_write_clean_record(), "nothing was sent");
        delayed.mark_outcomes_unknown();
        assert!(!delayed.can_write_clean_record());
        delayed.mark_outcomes_known();
        assert!(delayed.can_write_clean_record());
        delayed.clear_record_ownership();
        assert!(!delayed.can_write_clean_record(), "the record is another one's now");
    }

    #[test]
    fn only_held_record_is_held() {
        assert!(
            GrantRecord::held_record(7, Duration::ZERO).has_handover_delay()
                && !GrantRecord::clean_record().has_handover_delay()
        );
    }
}
