//! Grants tenures: the workers' handle to all locks of the process.

use std::{sync::Arc, time::Duration};

use fencegate_idempotency::{
    OperationAdmissionRequest, OperationPermit, OperationPermitCancelGuard, OperationToRecord, error,
    index::OperationIndex,
};
use fencegate_policies::{
    key::ResourceKey,
    plan::{CachedHoldLimits, LockReusePolicy},
};
use fencegate_process::clock::SharedClock;
use fencegate_zookeeper::{
    error::GrantError, peer_endpoint::HolderRoute, session::active_session::SessionState,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout, timeout_at},
};

pub use super::error::AcquireError;
use super::{
    ended_sessions::EndedPeerSessions,
    grant_guard::GrantGuard,
    key_slot::{EnterLocalQueueOutcome, LocalLockRequest},
    leased_lock::LeasedLock,
    lock_request::{LockRequest, LockWaitProgress, PermitCountRetry},
    member_cache::MemberCache,
    queue::QueueJoinPolicy,
    session_worker::SessionWorker,
    uncached_lock::{self, UncachedLock},
    uncached_registry::{LockWaitInfo, UncachedLockRegistry},
    uncached_task::{UncachedGrant, UncachedLockRequest},
    wait_deadline::LockWaitDeadline,
};
use crate::manager::key_capacity::{HolderKind, KeyRequestLimitError, KeyRequestLimiter, KeyRequestSlot};
use crate::manager::session_command::SessionCommand;
use crate::manager::{key_slot::table::KeySlotTable, lock_request::LockWaitPlace};

/// Requests locks from any thread. Cheap to clone.
#[derive(Clone)]
pub struct LockManager {
    /// The handles of the sessions; keys are spread over them.
    pub(super) session_handles: Arc<[SessionHandle]>,
    pub(super) table: Arc<KeySlotTable>,
    key_capacity: Arc<KeyRequestLimiter>,
    /// The requests with a lock node of their own.
    pub(super) uncached_registry: Arc<UncachedLockRegistry>,
    pub(super) member_names: Arc<MemberCache>,
    pub(super) clock: SharedClock,
}

/// The handle of one session.
pub(super) struct SessionHandle {
    pub(super) work: mpsc::UnboundedSender<SessionCommand>,
    pub(super) view: watch::Receiver<SessionState>,
}

/// A lock manager, and one worker for each of its `sessions`, to be run on the session's thread.
pub fn create_lock_manager(clock: SharedClock, sessions: usize) -> (LockManager, Vec<SessionWorker>) {
    let table = Arc::new(KeySlotTable::new(clock.clone()));
    let index = Arc::<OperationIndex>::default();
    let (lines, workers): (Vec<_>, Vec<_>) = (0..sessions.max(1))
        .map(|_| {
            let (work, commands) = mpsc::unbounded_channel();
            let (seen, view) = watch::channel(SessionState::NoSession("connecting to ZooKeeper".into()));
            (SessionHandle { work, view }, SessionWorker::new(commands, seen, table.clone(), index.clone()))
        })
        .unzip();
    let manager = LockManager {
        session_handles: lines.into(),
        table,
        key_capacity: Arc::default(),
        uncached_registry: Arc::default(),
        member_names: Arc::default(),
        clock,
    };
    (manager, workers)
}

impl LockManager {
    /// Acquires the lock of all keys of `request`.
    ///
    /// If the connection to ZooKeeper is lost, requests wait for it until the session deadline. After that they are
    /// refused at once, so that they do not pile up.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue; a node that exists is removed by its own task.
    pub async fn acquire(&self, request: LockRequest<'_>) -> Result<GrantGuard, AcquireError> {
        match (request.hold, request.keys) {
            (LockReusePolicy::Cached(rules), [key]) if request.permit_count().is_none() => {
                self.acquire_cached(key, rules, request).await
            }
            // Peers forward requests here only for a single cached key, and this request is for none.
            _ if request.waits == LockWaitPlace::AtHolder => Err(AcquireError::NotHolder),
            _ => self.acquire_uncached(request).await,
        }
    }

    /// Starts a request under a key that is held here, free, and valid; needs no wait and no other thread.
    pub fn try_acquire(&self, request: LockRequest<'_>) -> Option<GrantGuard> {
        match (request.hold, request.keys) {
            (LockReusePolicy::Cached(_), [key]) if request.permit_count().is_none() => {
                self.table.start_if_free(key, &request.site_of_key(0), request.mode, request.route)
            }
            _ => None,
        }
    }

    /// Ends all cached tenures, those held and those waited for. Call it when the key of a resource may change: between
    /// two uses of a cached tenure its resource might be used under another key, with larger tokens.
    pub fn close_all_tenures(&self) {
        self.table.close_all_tenures();
    }

    /// Records a response from the gateway at `route`, which therefore holds the key.
    pub fn record_holder(&self, key: &ResourceKey, route: &HolderRoute) {
        self.table.record_holder(key, route);
    }

    /// Records that the gateway at `route` does not hold the key.
    pub fn forget_holder(&self, key: &ResourceKey, route: &HolderRoute) {
        self.table.holder_cache.remove_route(key, route);
    }

    /// Records that no response came from the gateway at `route`, so no request is sent there for a while.
    pub fn mark_unreachable(&self, route: &HolderRoute) {
        self.table.mark_unreachable(route);
    }

    /// The sessions of peers that were seen to end.
    pub fn ended_sessions(&self) -> &EndedPeerSessions {
        &self.table.ended_sessions
    }

    async fn acquire_cached(
        &self,
        key: &ResourceKey,
        rules: CachedHoldLimits,
        request: LockRequest<'_>,
    ) -> Result<GrantGuard, AcquireError> {
        let LockRequest { mode, waits, delay, route, .. } = request;
        if waits == LockWaitPlace::Anywhere
            && let Some(holder) = self.table.holder_route(key)
        {
            return Err(AcquireError::Elsewhere(holder));
        }
        let session = self.session_handle(key);
        let patience = if request.wait.is_zero() {
            QueueJoinPolicy::NoWait
        } else {
            QueueJoinPolicy::QueueBehind(request.queue)
        };
        let deadline = LockWaitDeadline::for_lock_wait(request.wait);
        let wants = LocalLockRequest { mode, rules, patience, waits, delay, route };
        let mut unlike = PermitCountRetry::new(request);
        let mut view = session.view.clone();
        loop {
            // The session is checked before a slot is made, because without a session no task works for a key.
            self.check_session(&view.borrow())?;
            let (place, answer, attend) = match self.table.enter_queue(key, &request.site_of_key(0), wants) {
                EnterLocalQueueOutcome::Started(tenure) => return Ok(tenure),
                EnterLocalQueueOutcome::QueueFull => return Err(AcquireError::QueueFull),
                EnterLocalQueueOutcome::Busy => return Err(AcquireError::Locked),
                EnterLocalQueueOutcome::NotHolder => return Err(AcquireError::NotHolder),
                // The order matters: the queue guard is dropped last, so that the answer is already closed when the
                // guard looks for callers that have gone.
                EnterLocalQueueOutcome::Waiting { answer, place, attend } => (place, answer, attend),
            };
            if let Some(slot) = attend {
                session.work.send(SessionCommand::ServeKey(slot)).map_err(|_| stopping_error())?;
            }
            let answered = deadline.wait_until_deadline(answer, || self.table.is_key_blocked(key)).await;
            drop(place);
            match answered {
                Some(Ok(Ok(tenure))) => return Ok(tenure),
                // The gateway that forwarded the request here finds the next holder by itself, so the request does not
                // wait here.
                Some(Ok(Err(GrantError::Lost))) if waits == LockWaitPlace::AtHolder => {
                    return Err(AcquireError::NotHolder);
                }
                Some(Ok(Err(GrantError::PermitsDiffer)))
                    if unlike.wait_retry(deadline.latest_wait_end()).await => {}
                Some(Ok(Err(GrantError::Lost))) => {
                    self.wait_next_session(&mut view, deadline.latest_wait_end()).await?
                }
                Some(Ok(Err(error))) => return Err(error.into()),
                Some(Err(_closed)) => return Err(stopping_error()),
                None => {
                    return Err(timeout_error(
                        &view,
                        self.table.is_key_blocked(key),
                        self.table.remaining_delay(key),
                    ));
                }
            }
        }
    }

    /// Acquires the lock of all keys of `request` for a client's lease, under which requests can then run. A lease
    /// always has lock nodes of its own. During the call `ahead` shows the reasons for the wait.
    ///
    /// # Cancellation
    /// The same as for [`LockManager::acquire`].
    pub async fn acquire_lease(
        &self,
        request: LockRequest<'_>,
        ahead: Arc<LockWaitProgress>,
    ) -> Result<LeasedLock, AcquireError> {
        let request = LockRequest { hold: LockReusePolicy::Strict, waits: LockWaitPlace::Here, ..request };
        let (lock, root) = self.acquire_own_node(request, HolderKind::Client, ahead).await?;
        Ok(LeasedLock::new(lock, root))
    }

    async fn acquire_uncached(&self, request: LockRequest<'_>) -> Result<GrantGuard, AcquireError> {
        self.acquire_own_node(request, HolderKind::Request, Arc::default()).await.map(|(_, tenure)| tenure)
    }

    async fn acquire_own_node(
        &self,
        request: LockRequest<'_>,
        of: HolderKind,
        ahead: Arc<LockWaitProgress>,
    ) -> Result<(Arc<UncachedLock>, GrantGuard), AcquireError> {
        let session = self.session_handle(request.keys.first().expect("a wish names at least one key"));
        let enter = |key| {
            self.key_capacity
                .take_slot(key, of, request.capacity())
                .map_err(|KeyRequestLimitError| AcquireError::QueueFull)
        };
        let places: Arc<[_]> = request.keys.iter().map(enter).collect::<Result<Vec<_>, _>>()?.into();
        let asking = LockWaitInfo { asked: self.clock.now(), ahead: ahead.clone() };
        let enrolled = self.uncached_registry.register(request, asking);
        let deadline = LockWaitDeadline::for_lock_wait(request.wait);
        let mut unlike = PermitCountRetry::new(request);
        let mut view = session.view.clone();
        self.check_session(&view.borrow())?;
        loop {
            let taken = || ahead.has_holder_or_delay();
            match deadline
                .wait_until_deadline(request_uncached(session, request, &ahead, &places), taken)
                .await
            {
                Some(Ok(UncachedGrant { grant, over })) => {
                    enrolled.set_granted(&grant, self.clock.now());
                    return Ok(uncached_lock::create_uncached_lock(
                        grant,
                        request.mode,
                        of,
                        over,
                        enrolled,
                        self.clock.clone(),
                    ));
                }
                Some(Err(GrantError::PermitsDiffer))
                    if unlike.wait_retry(deadline.latest_wait_end()).await => {}
                Some(Err(GrantError::Lost)) => {
                    self.wait_next_session(&mut view, deadline.latest_wait_end()).await?
                }
                Some(Err(error)) => return Err(error.into()),
                None => {
                    return Err(timeout_error(
                        &view,
                        taken(),
                        ahead.remaining_handover_delay(self.clock.now()),
                    ));
                }
            }
        }
    }

    /// Records that an operation is to be sent, in one transaction with a check that its lock is held.
    ///
    /// # Cancellation
    /// Dropping the future cancels the operation: nothing was sent, and that is recorded.
    pub async fn admit_operation(
        &self,
        wanted: OperationToRecord,
    ) -> Result<OperationPermit, error::AdmitOperationError> {
        let stopping = || error::AdmitOperationError::Service("the gateway is stopping".into());
        let session = self.session_handle(wanted.keys.first().expect("an operation has at least one key"));
        let (admission, answered, admitted) = OperationAdmissionRequest::new(wanted);
        session.work.send(SessionCommand::AdmitOperation(Box::new(admission))).map_err(|_| stopping())?;
        let admitted = OperationPermitCancelGuard::new(admitted);
        answered.await.unwrap_or_else(|_| Err(stopping()))?;
        Ok(admitted.into_delivered_permit())
    }

    /// Whether a lock of any key could be granted now.
    pub fn is_ready(&self) -> bool {
        self.session_handles.iter().all(|session| session.view.borrow().is_ready(&self.clock))
    }

    /// The state of a session that is not ready, if there is one; else of the first session.
    pub fn session_state(&self) -> SessionState {
        let ready = |session: &&SessionHandle| !session.view.borrow().is_ready(&self.clock);
        let session = self
            .session_handles
            .iter()
            .find(ready)
            .or(self.session_handles.first())
            .expect("there is at least one session");
        session.view.borrow().clone()
    }

    /// The number of keys that requests of this gateway want or hold.
    pub fn key_count(&self) -> usize {
        self.table.key_count() + self.key_capacity.key_count()
    }

    pub(super) fn session_handle(&self, key: &ResourceKey) -> &SessionHandle {
        &self.session_handles[usize::from(key.lock_shard()) % self.session_handles.len()]
    }

    /// Waits until there is a session for this key. A process that was frozen needs this: it resumes before its next
    /// session is made.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub async fn wait_for_session(&self, key: &ResourceKey, patience: Duration) {
        let mut view = self.session_handle(key).view.clone();
        // If no session comes in time, the next request returns the error, so this result is dropped.
        drop(timeout(patience, view.wait_for(|view| self.check_session(view).is_ok())).await);
    }

    fn check_session(&self, view: &SessionState) -> Result<(), AcquireError> {
        match view {
            SessionState::NoSession(reason) => Err(AcquireError::Service(reason.to_string())),
            SessionState::NotInitialised(reason) => Err(AcquireError::NotInitialised(reason.to_string())),
            SessionState::RolledBack(reason) => Err(AcquireError::RolledBack(reason.to_string())),
            SessionState::Active { connected: false, deadline }
                if !deadline.is_valid_at(self.clock.now()) =>
            {
                Err(disconnected_error())
            }
            SessionState::Active { .. } => Ok(()),
        }
    }

    /// Waits for the next session after the one of a waiter has ended, so that the waiter can queue again under it.
    async fn wait_next_session(
        &self,
        view: &mut watch::Receiver<SessionState>,
        deadline: Instant,
    ) -> Result<(), AcquireError> {
        let state = view.wait_for(|view| match view {
            SessionState::Active { deadline: session_deadline, .. } => !session_deadline.is_revoked(),
            // Only an operator can resolve a rollback, so the wait ends.
            SessionState::RolledBack(_) => true,
            SessionState::NoSession(_) | SessionState::NotInitialised(_) => false,
        });
        let state = timeout_at(deadline, state).await;
        if matches!(&state, Ok(Ok(view)) if matches!(**view, SessionState::Active { .. })) {
            return Ok(());
        }
        drop(state);
        Err(timeout_error(view, false, None))
    }
}

async fn request_uncached(
    session: &SessionHandle,
    request: LockRequest<'_>,
    ahead: &Arc<LockWaitProgress>,
    places: &Arc<[KeyRequestSlot]>,
) -> Result<UncachedGrant, GrantError> {
    let (caller, answer) = oneshot::channel();
    let gone = || GrantError::Service("the gateway is stopping".into());
    let strict_request = UncachedLockRequest {
        keys: request.keyed_sites(),
        mode: request.mode,
        waits: !request.wait.is_zero(),
        caller,
        delay: request.delay,
        ahead: ahead.clone(),
        places: places.clone(),
    };
    session.work.send(SessionCommand::AcquireUncached(strict_request)).map_err(|_| gone())?;
    answer.await.unwrap_or_else(|_| Err(gone()))
}

/// The error at the end of a wait: because of another holder (`taken`), a delay (of which `rest` is left), or
/// ZooKeeper.
fn timeout_error(view: &watch::Receiver<SessionState>, taken: bool, rest: Option<Duration>) -> AcquireError {
    match &*view.borrow() {
        SessionState::NoSession(reason) => AcquireError::Service(reason.to_string()),
        SessionState::NotInitialised(reason) => AcquireError::NotInitialised(reason.to_string()),
        SessionState::RolledBack(reason) => AcquireError::RolledBack(reason.to_string()),
        SessionState::Active { connected: false, .. } => disconnected_error(),
        SessionState::Active { .. } => match (rest, taken) {
            (Some(rest), _) => AcquireError::Delayed(rest),
            (None, true) => AcquireError::Locked,
            (None, false) => AcquireError::Service("ZooKeeper did not answer in time".into()),
        },
    }
}

fn disconnected_error() -> AcquireError {
    AcquireError::Service("the connection to ZooKeeper is lost".into())
}

fn stopping_error() -> AcquireError {
    AcquireError::Service("the gateway is stopping".into())
}

#[cfg(test)]
mod tests;
