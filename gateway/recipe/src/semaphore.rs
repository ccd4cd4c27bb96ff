//! A lock with several holders at once, each with a permit of its own.
//!
//! Contenders wait in the queue of the key. The first `N` of them may create one of `N` nodes beside it, each as its
//! [`ExclusiveCreateAttempt`]: `permit-0` to `permit-<N-1>`. The creator of one holds the permit of that number. The token comes
//! from that node: among the nodes of one name each is younger than all before it. Queue positions do not have that
//! order, because a slow contender may take a permit after a later one had it and left.

use std::{cell::OnceCell, rc::Rc, sync::Arc};

use fencegate_policies::{
    key::ResourceKey,
    permits::{PermitCount, PermitIndex},
    plan::{LockLocation, LockMode},
};
use fencegate_process::failpoint;
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        active_session::ActiveSession,
        client::{MultiOp, NodeStat, ZkClient, ZkError},
        lock_validity::LockValidity,
    },
};
use tokio::time::sleep;

use super::{
    attempt::LockAttempt,
    exclusive_create::{ExclusiveCreateAttempt, ExclusiveCreateOutcome},
    grant::{LockAttemptError, LockAttemptObserver, LockGrant},
    layout::{PermitQueuePosition, permit_node_name},
    lock_node::{LockNodeAttempt, REFUSED_PAUSE, definite_error},
};

/// One attempt at a permit. In every case [`SemaphoreAttempt::remove_nodes`] has to be the last call.
pub struct SemaphoreAttempt<L: ZkClient> {
    permits: PermitCount,
    line: LockAttempt<L>,
    /// The path of the lock node in the queue, set once that node is among the first.
    place: OnceCell<String>,
    /// The node of the permit that the attempt holds or tries to take.
    node: ExclusiveCreateAttempt<L>,
}

/// The node of a permit is written a random number of times when it is created, less than this; the number is its
/// version. Another client may remove the node, and another attempt may take the permit before this one detects it.
/// Then the versions mostly differ, and a late delete does not hit the new holder's node.
const MAX_WRITES: u8 = 8;

/// So many permits are tried before the list is read anew: it may be old, and other contenders try as well.
const MAX_TRIES: usize = 8;

impl<L: ZkClient> SemaphoreAttempt<L> {
    /// Begins an attempt at a permit of `key`. Waits while the registry has no capacity.
    pub async fn begin(
        live: &Rc<ActiveSession<L>>,
        key: &ResourceKey,
        permits: PermitCount,
    ) -> Result<Self, GrantError> {
        if key.for_permit(permits.last()).is_none() {
            return Err(GrantError::KeyLimit("the keys of the permits of this one are too long"));
        }
        let line =
            LockAttempt::begin(live, key, &LockLocation::Semaphore { permits }, LockMode::Exclusive).await?;
        let longest = line.candidate.path(&permit_node_name(permits.last())).len();
        let mut writes = [0];
        live.randomness.fill(&mut writes);
        let node =
            ExclusiveCreateAttempt::prepare_exclusive_create(&line, longest, writes[0] % MAX_WRITES).await?;
        Ok(Self { permits, line, place: OnceCell::new(), node })
    }

    fn candidate(&self) -> &LockNodeAttempt<L> {
        &self.line.candidate
    }

    fn session(&self) -> &ActiveSession<L> {
        &self.candidate().live
    }

    /// Waits in the queue until it is among the first, and then takes a permit.
    pub async fn acquire(
        &self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<LockGrant, LockAttemptError> {
        let (own, mut children) = self.line.join_queue(caller).await?;
        let place = self.place.get_or_init(|| self.candidate().path(&own));
        let mut contended = false;
        let (permit, seen) = loop {
            if caller.is_closed() {
                return Err(LockAttemptError::CallerGone);
            }
            let seen = match PermitQueuePosition::compute(self.permits, &children, &own) {
                PermitQueuePosition::Now(free) if !free.is_empty() => {
                    match self.try_take_permit(place, &free).await? {
                        Some(taken) => break taken,
                        None => self.candidate().list_children().await?,
                    }
                }
                PermitQueuePosition::PermitsDiffer => return Err(GrantError::PermitsDiffer.into()),
                PermitQueuePosition::Gone => return Err(GrantError::Lost.into()),
                waits => {
                    contended = true;
                    caller.on_waiting()?;
                    failpoint::pass("while_waiting");
                    match waits {
                        PermitQueuePosition::Behind(before) => {
                            self.wait_for_predecessor(&own, before, caller).await?
                        }
                        _ => self.wait_for_any_release(&own, caller).await?,
                    }
                }
            };
            children = seen;
        };
        let epoch = self.node.token_epoch(seen)?;
        self.candidate().wait_session_valid(caller).await?;
        let validity = Arc::new(LockValidity::new(self.session().session_deadline.clone()));
        let nodes = [place.clone(), self.node.path().to_string()].into();
        Ok(LockGrant { epoch, sequence: 0, permit: Some(permit), validity, nodes, contended })
    }

    /// Tries to take one of the `free` permits. `None`: other contenders were faster, or the list was old.
    async fn try_take_permit(
        &self,
        place: &str,
        free: &[PermitIndex],
    ) -> Result<Option<(PermitIndex, NodeStat)>, GrantError> {
        for permit in free.iter().take(MAX_TRIES) {
            let node = self.candidate().path(&permit_node_name(*permit));
            let number = permit.to_string();
            // This step fails if this attempt's lock node is gone, and it wakes the contender that watches that node.
            let first = MultiOp::Set { path: place, data: number.as_bytes() };
            match self.node.try_create(self.candidate(), &node, first).await? {
                ExclusiveCreateOutcome::Ours(seen) => return Ok(Some((*permit, seen))),
                ExclusiveCreateOutcome::Taken(_) => {}
                // The parent is gone, and with it this attempt's lock node.
                ExclusiveCreateOutcome::NoParent => return Err(GrantError::Lost),
            }
        }
        Ok(None)
    }

    /// Returns the children when the direct predecessor, which also waits, holds or has left.
    ///
    /// The list is read after the watch is set. If the predecessor still waits in it, the watch fires when it takes its
    /// permit.
    async fn wait_for_predecessor(
        &self,
        own: &str,
        before: &str,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<Vec<String>, LockAttemptError> {
        let path = self.candidate().path(before);
        let watched = self.session().client.watch(&path);
        let listed = self.candidate().list_children();
        let (watched, children) = tokio::join!(watched, listed);
        let children = children?;
        match watched {
            Ok(changed)
                if PermitQueuePosition::compute(self.permits, &children, own)
                    == PermitQueuePosition::Behind(before) =>
            {
                self.wait_changed(changed, caller).await?;
            }
            Ok(_) | Err(ZkError::NoNode) => {}
            Err(ZkError::Ambiguous(_)) => self.candidate().pause_before_retry().await?,
            Err(fault) => return Err(definite_error(fault).into()),
        }
        Ok(children)
    }

    /// Returns the children when a holder may have left. The watch also fires for new contenders; that is cheap,
    /// because only one contender of a key watches the children.
    async fn wait_for_any_release(
        &self,
        own: &str,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<Vec<String>, LockAttemptError> {
        match self.session().client.watch_children(&self.candidate().parent).await {
            Ok((children, changed)) => {
                let now = PermitQueuePosition::compute(self.permits, &children, own);
                if now == PermitQueuePosition::Next || now == PermitQueuePosition::Now(Vec::new()) {
                    self.wait_changed(changed, caller).await?;
                }
                Ok(children)
            }
            Err(ZkError::NoNode) => Ok(Vec::new()),
            Err(ZkError::Ambiguous(_)) => {
                self.candidate().pause_before_retry().await?;
                Ok(self.candidate().list_children().await?)
            }
            Err(fault) => Err(definite_error(fault).into()),
        }
    }

    async fn wait_changed(
        &self,
        changed: L::Watch,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<(), LockAttemptError> {
        tokio::select! {
            () = changed => Ok(()),
            () = caller.closed() => Err(LockAttemptError::CallerGone),
            () = self.session().ended.cancelled() => Err(GrantError::Lost.into()),
        }
    }

    /// Returns when the own lock node or permit is lost, calling `gone` with its path, or when the session is over.
    /// Without the lock node other contenders count one holder less; without the permit's node another one takes the
    /// permit.
    pub async fn watch_own_nodes(&self, gone: &impl Fn(&str)) {
        let link = &self.session().client;
        let path = self.node.path();
        let Some(place) = self.place.get() else { return };
        loop {
            let stands = link.watch(place);
            let holds = link.watch(&path);
            let read = link.data(&path);
            let (stands, holds, read) = tokio::join!(stands, holds, read);
            failpoint::pass("while_watching");
            let faults = [stands.as_ref().err(), holds.as_ref().err(), read.as_ref().err()];
            if faults.contains(&Some(&ZkError::SessionEnded)) {
                return;
            }
            if faults.iter().flatten().any(|fault| matches!(fault, ZkError::Ambiguous(_))) {
                if self.candidate().pause_before_retry().await.is_err() {
                    return;
                }
                continue;
            }
            match (stands, holds, read) {
                (Err(ZkError::NoNode), _, _) => return gone(place),
                (_, _, Err(ZkError::NoNode)) => return gone(&path),
                (_, _, Ok((says, seen))) if !self.node.is_ours(&says, seen) => return gone(&path),
                (Ok(stands), Ok(holds), Ok(_)) => tokio::select! {
                    () = stands => {}
                    () = holds => {}
                },
                // The server refused the watch. Until it is set, a removal may go unnoticed, so retry.
                _ => sleep(REFUSED_PAUSE).await,
            }
        }
    }

    /// Removes the permit's node and the lock node in the queue. Returns when neither is left, or when the session is
    /// over.
    pub async fn remove_nodes(&self) {
        self.node.remove_nodes(&self.line, self.place.get().map(String::as_str)).await;
    }
}
