//! One lease: waiting for its lock, holding it, or over, and the time at which it ends by itself.
//!
//! # Invariant
//! A lease whose id is in the answer to a client (a *disclosed* one) never ends because a request went away: it ends by
//! a release, by its own times, by an operator, or with its lock. A lease whose id is in no answer lives only while a
//! request waits that may still be answered with it. It ends with the last of these requests, and its name is free at
//! once, because no client can use it, renew it or give it back.
//!
//! So the id is disclosed, and the promise is made, in the one critical section that takes the snapshot for the answer.
//! Whoever ends a lease for the lack of a client decides in the same mutex. A grant alone discloses nothing: the request
//! that waits for it may stand still, or be gone, and a repeat under the same name may be answered first.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_lock::manager::{
    call_chain::NestedCallbackError, grant_guard::GrantGuard, leased_lock::LeasedLock,
    lock_request::LockWaitProgress,
};
use fencegate_policies::{
    key::ResourceKey,
    permits::PermitCount,
    plan::{GatewayPlan, LockLocation, LockMode},
};
use fencegate_process::clock::{BootInstant, SharedClock};
use fencegate_protocol::lease_id::LeaseId;
use tokio::sync::watch;

use super::state::{LeaseStage, LeaseState};

pub use super::state::LeaseEndReason;

/// A lease of this gateway. Access is checked elsewhere: the owner of a reference may call everything.
pub struct Lease {
    pub id: LeaseId,
    /// Sorted, without duplicates, at least one.
    pub keys: Arc<[ResourceKey]>,
    pub(super) sites: Vec<LockLocation>,
    pub mode: LockMode,
    /// The number of permits, if its client has given one.
    pub(super) permits: Option<PermitCount>,
    pub principal: Arc<str>,
    /// The client's note, shown to clients that look up the holder of the key.
    pub note: Option<Arc<str>>,
    pub(super) name: Option<LeaseIdempotencyKey>,
    pub began: BootInstant,
    /// The instant at which the lease reaches its greatest age.
    ends: BootInstant,
    pub(super) ahead: Arc<LockWaitProgress>,
    clock: SharedClock,
    life: Mutex<LeaseState>,
    /// Counts the lease among the requests of its service, until its lock is released. `None`: its client forwards no
    /// request under the keys of a route.
    request: Mutex<Option<RunningRequestGuard>>,
    /// The names of the routes whose keys have changed since the lease began, one set for each reload that
    /// changed some.
    rekeyed: Mutex<Vec<Arc<HashSet<String>>>>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

/// The time for which a lease that has ended held its lock.
pub(super) enum EndedLeaseHoldTime {
    NeverHeld,
    /// The lease held its lock for this time.
    Held(Duration),
}

/// The state of a lease at one moment.
#[derive(Debug, Clone)]
pub struct LeaseSnapshot {
    pub stage: LeaseStageSnapshot,
    pub ttl: Duration,
    /// The time until the lease is over by itself; zero when it is over.
    pub expires_in: Duration,
    pub revocation: Option<Arc<str>>,
    /// Grows with each change.
    pub revision: u64,
    pub age: Duration,
}

/// The stage of a lease.
#[derive(Debug, Clone)]
pub enum LeaseStageSnapshot {
    Waiting {
        ahead: usize,
    },
    Held {
        lock: Arc<LeasedLock>,
        held_for: Duration,
        since: Duration,
    },
    /// The lease is over. Its lock is kept for the time `kept_for`, because that was promised to its client.
    Over {
        why: LeaseEndReason,
        kept_for: Duration,
    },
}

/// The reason for which no request can run under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunUnderLeaseError {
    /// The lease still waits for its lock.
    Waiting,
    /// The lease is over, or its lock is lost.
    Over,
    /// The lock validity of its session could not be confirmed in time.
    Unproven,
    /// The lease is shared, and the request writes.
    Upgrade,
}

/// The lease that a client requests.
pub struct LeaseSpec {
    pub keys: Arc<[ResourceKey]>,
    pub placed: CheckedLeaseLocks,
    pub mode: LockMode,
    pub permits: Option<PermitCount>,
    pub ttl: Duration,
    pub principal: Arc<str>,
    pub note: Option<Arc<str>>,
    /// The greatest age of the lease.
    pub max_age: Duration,
    /// How long its client waits for the response and cannot renew.
    pub unheard: Duration,
    /// For a request that another proxy forwards: a reload that changes the key of its resource waits for the lease.
    pub request: Option<RunningRequestGuard>,
    /// The name that the client has given to its request, if any.
    pub name: Option<LeaseIdempotencyKey>,
}

/// The name that a client has given to its request for a lease (`Idempotency-Key`). A repeat under the same name
/// gets the same lease, because its client may not have read the first answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseIdempotencyKey {
    pub key: Arc<str>,
    /// A digest of the request. A repeat has to have the same digest.
    pub fingerprint: u64,
}

/// The locks of a new lease, with the plan and the session for which they were checked: it is granted under no other
/// plan, and by no other session.
pub struct CheckedLeaseLocks {
    /// In the order of the keys.
    pub sites: Vec<LockLocation>,
    pub plan: Arc<GatewayPlan>,
    /// Gateways lock these keys identically for this session.
    pub session: i64,
}

impl Lease {
    pub(super) fn new(id: LeaseId, wanted: LeaseSpec, clock: SharedClock) -> Self {
        let LeaseSpec { keys, placed, mode, permits, ttl, principal, note, max_age, unheard, request, name } =
            wanted;
        let now = clock.now();
        let ends = now + max_age;
        let expires = now + ttl + unheard;
        let state = LeaseState {
            stage: LeaseStage::Waiting,
            ttl,
            expires: expires.min(ends),
            promised: now,
            revocation: None,
            was_held: false,
            is_disclosed: false,
            pending_requests: 1,
        };
        let ahead = Arc::default();
        let changes = watch::Sender::new(1);
        Self {
            id,
            keys,
            sites: placed.sites,
            mode,
            permits,
            principal,
            note,
            name,
            began: now,
            ends,
            ahead,
            clock,
            life: Mutex::new(state),
            request: Mutex::new(request),
            rekeyed: Mutex::default(),
            changes,
        }
    }

    /// Records that another plan changes the keys of these routes from now on. Call this before a request begins
    /// under that plan.
    pub(super) fn mark_rekeyed(&self, routes: &Arc<HashSet<String>>) {
        self.rekeyed.lock().unwrap_or_else(PoisonError::into_inner).push(routes.clone());
    }

    /// True if the keys of this route have changed since the lease began. In between, requests for its resource may
    /// have run under another key, beside the lease and with newer tokens. Later keys that equal the first ones do
    /// not undo that.
    pub fn is_rekeyed(&self, route: &str) -> bool {
        let rekeyed = self.rekeyed.lock().unwrap_or_else(PoisonError::into_inner);
        rekeyed.iter().any(|routes| routes.contains(route))
    }

    fn lock_state(&self) -> MutexGuard<'_, LeaseState> {
        // A poisoned lock does no harm: every change of the state is one assignment.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }

    /// Counts one more request that may be answered with the lease. Returns false, and counts nothing, if the lease is
    /// over.
    pub(super) fn add_pending_request(&self) -> bool {
        let mut state = self.lock_state();
        let lives = !matches!(state.stage, LeaseStage::Over { .. });
        if lives {
            state.pending_requests += 1;
        }
        lives
    }

    /// Records that one of the counted requests is answered, or gone. If no other one is left and the id is in
    /// no answer, this ends the lease.
    pub(super) fn remove_pending_request(&self, why: LeaseEndReason) -> Option<EndedLeaseHoldTime> {
        self.end_with(|state| {
            state.pending_requests -= 1;
            (state.pending_requests == 0 && !state.is_disclosed).then_some(why)
        })
    }

    /// Records that the lock of the lease was granted. If the lease is over, the lock is released at once.
    pub(super) fn on_granted(&self, lock: LeasedLock) {
        let mut state = self.lock_state();
        let now = self.clock.now();
        if !matches!(state.stage, LeaseStage::Waiting) || state.lapse_reason(now, self.ends).is_some() {
            drop(state);
            return lock.release_when_idle();
        }
        state.stage = LeaseStage::Held { lock: Arc::new(lock), since: now };
        state.was_held = true;
        state.expires = (now + state.ttl).min(self.ends);
        drop(state);
        self.notify_changed();
    }

    /// Ends the lease: nothing more is started under it. `None` if it was over before.
    pub(super) fn end(&self, why: LeaseEndReason) -> Option<EndedLeaseHoldTime> {
        self.end_with(|_| Some(why))
    }

    /// Ends the lease if its time is over; returns the reason as well.
    pub(super) fn end_if_lapsed(&self) -> Option<(EndedLeaseHoldTime, &'static str)> {
        let mut word = "";
        let ended = self.end_with(|state| {
            let why = state.lapse_reason(self.clock.now(), self.ends)?;
            word = why.as_str();
            Some(why)
        });
        ended.map(|ended| (ended, word))
    }

    fn end_with(
        &self,
        why: impl FnOnce(&mut LeaseState) -> Option<LeaseEndReason>,
    ) -> Option<EndedLeaseHoldTime> {
        let mut state = self.lock_state();
        if matches!(state.stage, LeaseStage::Over { .. }) {
            return None;
        }
        let why = why(&mut state)?;
        let now = self.clock.now();
        // The lock is kept until the promise to the client is over, unless the client itself has released the
        // lease. If a set of locks is lost, some of its nodes may be left, and these were promised, too.
        let kept = !matches!(why, LeaseEndReason::Released) && now < state.promised;
        let over = LeaseStage::Over { why, at: now, lock: None };
        let (ended, lock) = match std::mem::replace(&mut state.stage, over) {
            LeaseStage::Held { lock, since } => (EndedLeaseHoldTime::Held(now.since(since)), Some(lock)),
            LeaseStage::Waiting | LeaseStage::Over { .. } => (EndedLeaseHoldTime::NeverHeld, None),
        };
        if let Some(lock) = &lock {
            lock.stop_new_requests();
        }
        let given = match (&mut state.stage, lock) {
            (LeaseStage::Over { lock: held, .. }, lock) if kept => {
                *held = lock;
                None
            }
            (_, lock) => lock,
        };
        drop(state);
        if let Some(lock) = given {
            lock.release_when_idle();
        }
        if !kept {
            self.stop_blocking_reloads();
        }
        self.notify_changed();
        Some(ended)
    }

    /// Releases the lock of a lease that is over, when no promise about it remains. Requests under it continue, and
    /// the next holder is granted the lock after them.
    pub(super) fn release_if_due(&self) {
        let mut state = self.lock_state();
        let due = self.clock.now() >= state.promised;
        let LeaseStage::Over { lock, .. } = &mut state.stage else { return };
        if !due {
            return;
        }
        let given = lock.take();
        drop(state);
        if let Some(lock) = given {
            lock.release_when_idle();
        }
        self.stop_blocking_reloads();
    }

    /// Reloads do not wait for this lease any more.
    fn stop_blocking_reloads(&self) {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Extends the lease until `ttl` from now, but not beyond its greatest age. `None` if it is over.
    pub fn renew(&self, ttl: Duration) -> Option<()> {
        let mut state = self.lock_state();
        // The clock is read under the mutex, so every check of the end sees either the old or the new expiry.
        let now = self.clock.now();
        if matches!(state.stage, LeaseStage::Over { .. }) || state.lapse_reason(now, self.ends).is_some() {
            return None;
        }
        (state.ttl, state.expires) = (ttl, (now + ttl).min(self.ends));
        Some(())
    }

    /// Records that an operator requests the client to release the lease. If there are several reasons, the
    /// first is kept.
    pub fn request_release(&self, why: Arc<str>) {
        self.lock_state().revocation.get_or_insert(why);
        self.notify_changed();
    }

    pub fn is_over(&self) -> bool {
        matches!(self.lock_state().stage, LeaseStage::Over { .. })
    }

    /// True if the lease is over and no client can have worked under it: it never had its lock, or its id is in no
    /// answer. After the end this changes no more.
    pub(super) fn ended_unused(&self) -> bool {
        let state = self.lock_state();
        matches!(state.stage, LeaseStage::Over { .. }) && !(state.was_held && state.is_disclosed)
    }

    /// How long the lease has been over; `None` before its end.
    pub(super) fn over_for(&self) -> Option<Duration> {
        match self.lock_state().stage {
            LeaseStage::Over { at, lock: None, .. } => Some(self.clock.now().since(at)),
            LeaseStage::Over { .. } => Some(Duration::ZERO),
            LeaseStage::Waiting | LeaseStage::Held { .. } => None,
        }
    }

    /// True if the lease waits for its lock, or has not released it yet.
    pub fn may_hold(&self) -> bool {
        self.over_for().is_none_or(|over| over.is_zero())
    }

    /// A snapshot for an answer that contains the id of the lease. It is a promise: a lock that is reported as
    /// held stays held for the reported time, whatever ends the lease.
    pub(super) fn snapshot_and_promise(&self) -> LeaseSnapshot {
        self.snapshot_with_promise(|_| true)
    }

    /// A snapshot for an answer that contains the id only if the lease holds its lock. If it does, the snapshot
    /// is a promise.
    pub(super) fn snapshot_promised_if_held(&self) -> LeaseSnapshot {
        self.snapshot_with_promise(|stage| matches!(stage, LeaseStage::Held { .. }))
    }

    pub fn snapshot(&self) -> LeaseSnapshot {
        self.snapshot_with_promise(|_| false)
    }

    /// `discloses`: whether the answer has the id, by the stage of the lease.
    fn snapshot_with_promise(&self, discloses: impl FnOnce(&LeaseStage) -> bool) -> LeaseSnapshot {
        let revision = *self.changes.borrow();
        let mut state = self.lock_state();
        let now = self.clock.now();
        let expires_in = state.expires.since(now);
        let stage = match &state.stage {
            LeaseStage::Waiting => LeaseStageSnapshot::Waiting { ahead: self.ahead.nodes_ahead() },
            LeaseStage::Held { lock, since } => {
                let proven =
                    if lock.is_held_at(now) { lock.session_expires_at().since(now) } else { Duration::ZERO };
                LeaseStageSnapshot::Held {
                    lock: lock.clone(),
                    held_for: proven.min(expires_in),
                    since: now.since(*since),
                }
            }
            LeaseStage::Over { why, lock, .. } => {
                let kept_for = lock.as_ref().map(|_| state.promised.since(now)).unwrap_or_default();
                LeaseStageSnapshot::Over { why: why.clone(), kept_for }
            }
        };
        if discloses(&state.stage) {
            // The id of a lease that is over is of no use, so it does not count as disclosed.
            state.is_disclosed |= !matches!(stage, LeaseStageSnapshot::Over { .. });
            if let LeaseStageSnapshot::Held { held_for, .. } = &stage {
                state.promised = state.promised.max(now + *held_for);
            }
        }
        LeaseSnapshot {
            expires_in: if matches!(stage, LeaseStageSnapshot::Over { .. }) {
                Duration::ZERO
            } else {
                expires_in
            },
            stage,
            ttl: state.ttl,
            revocation: state.revocation.clone(),
            revision,
            age: now.since(self.began),
        }
    }

    /// Returns when the revision differs from `revision`.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub async fn wait_changed(&self, revision: u64) {
        let mut changes = self.changes.subscribe();
        // This cannot fail, because the lease owns the sender.
        drop(changes.wait_for(|now| *now != revision).await);
    }

    /// Returns when the lease no longer waits.
    pub(crate) async fn wait_decided(&self) {
        let mut changes = self.changes.subscribe();
        drop(changes.wait_for(|_| !matches!(self.lock_state().stage, LeaseStage::Waiting)).await);
    }

    /// The keys as guards, tickets and services receive them: the holder of one of several permits has watermarks of
    /// its own.
    pub fn keys_with_permit(&self, lock: &LeasedLock) -> Vec<ResourceKey> {
        lock.permit()
            .map_or_else(|| self.keys.to_vec(), |permit| ResourceKey::all_for_permit(&self.keys, permit))
    }

    /// The grant for a request under the lease, and its mode. A writer waits for its turn.
    ///
    /// # Cancellation
    /// Dropping the future gives up the turn.
    pub async fn acquire_turn(&self, mode: LockMode) -> Result<(GrantGuard, LockMode), RunUnderLeaseError> {
        let lock = self.held_lock()?;
        let entered = lock.start_request(mode).await;
        // The turn may have come after the end of the lease, and before the sweep has recorded that.
        self.held_lock()?;
        entered.map_err(|error| match error {
            NestedCallbackError::Unproven => RunUnderLeaseError::Unproven,
            NestedCallbackError::Upgrade => RunUnderLeaseError::Upgrade,
            _ => RunUnderLeaseError::Over,
        })
    }

    fn held_lock(&self) -> Result<Arc<LeasedLock>, RunUnderLeaseError> {
        let state = self.lock_state();
        match &state.stage {
            LeaseStage::Waiting => Err(RunUnderLeaseError::Waiting),
            LeaseStage::Held { lock, .. } if state.lapse_reason(self.clock.now(), self.ends).is_none() => {
                Ok(lock.clone())
            }
            LeaseStage::Held { .. } | LeaseStage::Over { .. } => Err(RunUnderLeaseError::Over),
        }
    }
}

/// The lock of `key` for a client that has set the number of permits; by the plan it is at `site`.
pub(crate) fn site_for_permits(
    site: LockLocation,
    key: &ResourceKey,
    permits: Option<PermitCount>,
) -> LockLocation {
    match (site, permits) {
        (LockLocation::Native, Some(permits)) => LockLocation::semaphore(key, permits).unwrap_or_default(),
        (site, _) => site,
    }
}
