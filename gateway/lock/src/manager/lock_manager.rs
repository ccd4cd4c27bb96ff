//! Gives out tenures: the workers' handle on everything that holds locks.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{CachedHold, Hold},
};
use fencegate_process::clock::SharedClock;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout, timeout_at},
};

pub use super::error::AcquireError;
use super::{
    ended_sessions::EndedSessions,
    grant_guard::GrantGuard,
    key_slot::{EnterOutcome, LocalRequest},
    leased_lock::LeasedLock,
    lock_request::LockRequest,
    member_cache::MemberCache,
    permit_count_retry::PermitCountRetry,
    queue::WaitLimit,
    session_worker::SessionWorker,
    strict::{StrictGrant, StrictRequest},
    strict_registry::{StrictRegistry, WaitInfo},
    uncached_lock::{self, UncachedLock},
    wait_deadline::WaitDeadline,
    wait_progress::WaitProgress,
};
use crate::error::GrantError;
use crate::manager::key_capacity::{CapacityExceededError, CapacityGuard, HolderKind, KeyCapacity};
use crate::manager::session_command::SessionCommand;
use crate::manager::{key_slot::table::KeyTable, lock_request::WaitPlace};
use crate::{
    idempotency::{
        AdmissionRequest, OperationPermit, PendingOperation, UndeliveredPermit, error, index::OperationIndex,
    },
    peer_endpoint::HolderRoute,
    session::active_session::SessionState,
};

/// Asks for locks from any thread. Cheap to clone.
#[derive(Clone)]
pub struct LockManager {
    /// One per session; keys are spread over them.
    pub(super) session_handles: Arc<[SessionHandle]>,
    pub(super) table: Arc<KeyTable>,
    key_capacity: Arc<KeyCapacity>,
    /// Requests with a lock node of their own.
    pub(super) strict_registry: Arc<StrictRegistry>,
    pub(super) member_names: Arc<MemberCache>,
    pub(super) clock: SharedClock,
}

/// The way to one session.
pub(super) struct SessionHandle {
    pub(super) work: mpsc::UnboundedSender<SessionCommand>,
    pub(super) view: watch::Receiver<SessionState>,
}

/// A keeper, and the desks of its `sessions`, to be run on the session's thread.
pub fn lock_manager(clock: SharedClock, sessions: usize) -> (LockManager, Vec<SessionWorker>) {
    let (table, census) = (Arc::new(KeyTable::new(clock.clone())), Arc::<OperationIndex>::default());
    let (lines, desks): (Vec<_>, Vec<_>) = (0..sessions.max(1))
        .map(|_| {
            let (work, asked) = mpsc::unbounded_channel();
            let (seen, view) = watch::channel(SessionState::NoSession("connecting to ZooKeeper".into()));
            (SessionHandle { work, view }, SessionWorker::new(asked, seen, table.clone(), census.clone()))
        })
        .unzip();
    let keeper = LockManager {
        session_handles: lines.into(),
        table,
        key_capacity: Arc::default(),
        strict_registry: Arc::default(),
        member_names: Arc::default(),
        clock,
    };
    (keeper, desks)
}

impl LockManager {
    /// Takes the lock of all keys of `wish`.
    ///
    /// If the connection to ZooKeeper is lost, requests wait for it until the proof ends. After that they are refused
    /// at once, so that they do not pile up.
    ///
    /// # Cancellation
    /// Dropping the future gives up the place in the queue; a node that exists is removed by its own task.
    pub async fn acquire(&self, wish: LockRequest<'_>) -> Result<GrantGuard, AcquireError> {
        match (wish.hold, wish.keys) {
            (Hold::Cached(rules), [key]) if wish.permits().is_none() => {
                self.acquire_cached(key, rules, wish).await
            }
            // Other gateways send requests here only for a cached key, and this wish is for none.
            _ if wish.waits == WaitPlace::AtHolder => Err(AcquireError::NotHolder),
            _ => self.acquire_strict(wish).await,
        }
    }

    /// The tenure of a key that is held here, free, and proven; needs no wait and no other thread.
    pub fn try_acquire(&self, wish: LockRequest<'_>) -> Option<GrantGuard> {
        match (wish.hold, wish.keys) {
            (Hold::Cached(_), [key]) if wish.permits().is_none() => {
                self.table.start_free(key, &wish.site(0), wish.mode, wish.route)
            }
            _ => None,
        }
    }

    /// Ends all cached tenures, those held and those waited for; call it when a resource may get another key. Between
    /// two uses of a cached tenure its resource might be used under another key, with larger tokens.
    pub fn close_all(&self) {
        self.table.close_all();
    }

    /// An answer came from the gateway at `way`, so it keeps the key.
    pub fn record_holder(&self, key: &ResourceKey, way: &HolderRoute) {
        self.table.learn(key, way);
    }

    /// The gateway at `way` does not keep the key.
    pub fn forget_holder(&self, key: &ResourceKey, way: &HolderRoute) {
        self.table.holder_cache.forget(key, way);
    }

    /// No answer came from the gateway at `way`, so no request is sent there for a while.
    pub fn mark_unreachable(&self, way: &HolderRoute) {
        self.table.mark_unreachable(way);
    }

    /// Sessions of other gateways that have ended.
    pub fn ended_sessions(&self) -> &EndedSessions {
        &self.table.ended_sessions
    }

    async fn acquire_cached(
        &self,
        key: &ResourceKey,
        rules: CachedHold,
        wish: LockRequest<'_>,
    ) -> Result<GrantGuard, AcquireError> {
        let LockRequest { mode, waits, delay, route, .. } = wish;
        if waits == WaitPlace::Anywhere
            && let Some(way) = self.table.holder_route(key)
        {
            return Err(AcquireError::Elsewhere(way));
        }
        let session = self.session_handle(key);
        let patience =
            if wish.wait.is_zero() { WaitLimit::NoWait } else { WaitLimit::QueueBehind(wish.queue) };
        let deadline = WaitDeadline::after(wish.wait);
        let wants = LocalRequest { mode, rules, patience, waits, delay, route };
        let mut unlike = PermitCountRetry::new(wish);
        let mut view = session.view.clone();
        loop {
            // Checked before a slot is made, because without a session no task works for a key.
            self.check_session(&view.borrow())?;
            let (place, answer, attend) = match self.table.enter(key, &wish.site(0), wants) {
                EnterOutcome::Started(tenure) => return Ok(tenure),
                EnterOutcome::QueueFull => return Err(AcquireError::QueueFull),
                EnterOutcome::Busy => return Err(AcquireError::Locked),
                EnterOutcome::NotHolder => return Err(AcquireError::NotHolder),
                // The order matters: the place is dropped last, when nobody waits for the answer any more.
                EnterOutcome::Waiting { answer, place, attend } => (place, answer, attend),
            };
            if let Some(slot) = attend {
                session.work.send(SessionCommand::ServeKey(slot)).map_err(|_| stopping_error())?;
            }
            let answered = deadline.wait_for(answer, || self.table.is_taken(key)).await;
            drop(place);
            match answered {
                Some(Ok(Ok(tenure))) => return Ok(tenure),
                // The gateway that has sent the request here finds the next holder by itself.
                Some(Ok(Err(GrantError::Lost))) if waits == WaitPlace::AtHolder => {
                    return Err(AcquireError::NotHolder);
                }
                Some(Ok(Err(GrantError::PermitsDiffer))) if unlike.wait_retry(deadline.latest()).await => {}
                Some(Ok(Err(GrantError::Lost))) => {
                    self.wait_next_session(&mut view, deadline.latest()).await?
                }
                Some(Ok(Err(why))) => return Err(why.into()),
                Some(Err(_closed)) => return Err(stopping_error()),
                None => {
                    return Err(timeout_error(
                        &view,
                        self.table.is_taken(key),
                        self.table.remaining_delay(key),
                    ));
                }
            }
        }
    }

    /// Takes the lock of all keys of `wish` for a client's lease, under which requests can then run. A lease always has
    /// lock nodes of its own. `ahead` tells meanwhile what it waits for.
    ///
    /// # Cancellation
    /// The same as for [`LockManager::acquire`].
    pub async fn lease(
        &self,
        wish: LockRequest<'_>,
        ahead: Arc<WaitProgress>,
    ) -> Result<LeasedLock, AcquireError> {
        let wish = LockRequest { hold: Hold::Strict, waits: WaitPlace::Here, ..wish };
        let (lock, root) = self.acquire_own_node(wish, HolderKind::Client, ahead).await?;
        Ok(LeasedLock::new(lock, root))
    }

    async fn acquire_strict(&self, wish: LockRequest<'_>) -> Result<GrantGuard, AcquireError> {
        self.acquire_own_node(wish, HolderKind::Request, Arc::default()).await.map(|(_, tenure)| tenure)
    }

    async fn acquire_own_node(
        &self,
        wish: LockRequest<'_>,
        of: HolderKind,
        ahead: Arc<WaitProgress>,
    ) -> Result<(Arc<UncachedLock>, GrantGuard), AcquireError> {
        let session = self.session_handle(wish.keys.first().expect("a wish names at least one key"));
        let enter = |key| {
            self.key_capacity
                .enter(key, of, wish.capacity())
                .map_err(|CapacityExceededError| AcquireError::QueueFull)
        };
        let places: Arc<[_]> = wish.keys.iter().map(enter).collect::<Result<Vec<_>, _>>()?.into();
        let asking = WaitInfo { asked: self.clock.now(), ahead: ahead.clone() };
        let enrolled = self.strict_registry.register(wish, asking);
        let (deadline, mut unlike) = (WaitDeadline::after(wish.wait), PermitCountRetry::new(wish));
        let mut view = session.view.clone();
        self.check_session(&view.borrow())?;
        loop {
            let taken = || ahead.is_blocked();
            match deadline.wait_for(request_strict(session, wish, &ahead, &places), taken).await {
                Some(Ok(StrictGrant { grant, over })) => {
                    enrolled.set_granted(&grant, self.clock.now());
                    return Ok(uncached_lock::begin(
                        grant,
                        (wish.mode, of),
                        over,
                        enrolled,
                        self.clock.clone(),
                    ));
                }
                Some(Err(GrantError::PermitsDiffer)) if unlike.wait_retry(deadline.latest()).await => {}
                Some(Err(GrantError::Lost)) => self.wait_next_session(&mut view, deadline.latest()).await?,
                Some(Err(why)) => return Err(why.into()),
                None => return Err(timeout_error(&view, taken(), ahead.remaining_delay(self.clock.now()))),
            }
        }
    }

    /// Writes down that an operation is to be sent, in one transaction with a check that its lock is held.
    ///
    /// # Cancellation
    /// Dropping the future gives the operation up: nothing was sent, and that is written down.
    pub async fn admit(
        &self,
        wanted: PendingOperation,
    ) -> Result<OperationPermit, error::AdmitOperationError> {
        let stopping = || error::AdmitOperationError::Service("the gateway is stopping".into());
        let session = self.session_handle(wanted.keys.first().expect("an operation has at least one key"));
        let (admission, answered, admitted) = AdmissionRequest::new(wanted);
        session.work.send(SessionCommand::AdmitOperation(Box::new(admission))).map_err(|_| stopping())?;
        let admitted = UndeliveredPermit::new(admitted);
        answered.await.unwrap_or_else(|_| Err(stopping()))?;
        Ok(admitted.deliver())
    }

    /// Could a lock of any key be granted now?
    pub fn is_ready(&self) -> bool {
        self.session_handles.iter().all(|session| session.view.borrow().is_ready(&self.clock))
    }

    /// The state of a session that is not ready, if there is one; else of any session.
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

    /// Keys that somebody here wants or holds.
    pub fn key_count(&self) -> usize {
        self.table.key_count() + self.key_capacity.key_count()
    }

    pub(super) fn session_handle(&self, key: &ResourceKey) -> &SessionHandle {
        &self.session_handles[usize::from(key.shard()) % self.session_handles.len()]
    }

    /// Waits until there is a session for this key. A process that was frozen wakes up before its next session is made.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub async fn wait_for_session(&self, key: &ResourceKey, patience: Duration) {
        let mut view = self.session_handle(key).view.clone();
        // If no session comes in time, the next call says so.
        drop(timeout(patience, view.wait_for(|view| self.check_session(view).is_ok())).await);
    }

    fn check_session(&self, view: &SessionState) -> Result<(), AcquireError> {
        match view {
            SessionState::NoSession(why) => Err(AcquireError::Service(why.to_string())),
            SessionState::NotInitialised(why) => Err(AcquireError::NotInitialised(why.to_string())),
            SessionState::RolledBack(why) => Err(AcquireError::RolledBack(why.to_string())),
            SessionState::Active { connected: false, deadline: proof }
                if !proof.is_valid_at(self.clock.now()) =>
            {
                Err(disconnected_error())
            }
            SessionState::Active { .. } => Ok(()),
        }
    }

    /// A waiter whose session ended queues again under the next one, if that comes in time.
    async fn wait_next_session(
        &self,
        view: &mut watch::Receiver<SessionState>,
        deadline: Instant,
    ) -> Result<(), AcquireError> {
        let told = view.wait_for(|view| match view {
            SessionState::Active { deadline: proof, .. } => !proof.is_revoked(),
            // Only an operator can change that.
            SessionState::RolledBack(_) => true,
            SessionState::NoSession(_) | SessionState::NotInitialised(_) => false,
        });
        let told = timeout_at(deadline, told).await;
        if matches!(&told, Ok(Ok(view)) if matches!(**view, SessionState::Active { .. })) {
            return Ok(());
        }
        drop(told);
        Err(timeout_error(view, false, None))
    }
}

async fn request_strict(
    session: &SessionHandle,
    wish: LockRequest<'_>,
    ahead: &Arc<WaitProgress>,
    places: &Arc<[CapacityGuard]>,
) -> Result<StrictGrant, GrantError> {
    let (caller, answer) = oneshot::channel();
    let gone = || GrantError::Service("the gateway is stopping".into());
    let request = StrictRequest {
        keys: wish.keyed_sites(),
        mode: wish.mode,
        waits: !wish.wait.is_zero(),
        caller,
        delay: wish.delay,
        ahead: ahead.clone(),
        places: places.clone(),
    };
    session.work.send(SessionCommand::AcquireStrict(request)).map_err(|_| gone())?;
    answer.await.unwrap_or_else(|_| Err(gone()))
}

/// The refusal at the end of a wait: because of another holder (`taken`), a delay (`rest` of it is left), or ZooKeeper.
fn timeout_error(view: &watch::Receiver<SessionState>, taken: bool, rest: Option<Duration>) -> AcquireError {
    match &*view.borrow() {
        SessionState::NoSession(why) => AcquireError::Service(why.to_string()),
        SessionState::NotInitialised(why) => AcquireError::NotInitialised(why.to_string()),
        SessionState::RolledBack(why) => AcquireError::RolledBack(why.to_string()),
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
