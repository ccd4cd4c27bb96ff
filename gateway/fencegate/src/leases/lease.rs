//! One lease: waiting for its lock, holding it, or over, and when it is over by itself.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_lock::manager::{
    call_chain::CallbackError, grant_guard::GrantGuard, leased_lock::LeasedLock, wait_progress::WaitProgress,
};
use fencegate_policies::{
    key::ResourceKey,
    permits::Permits,
    plan::{GatewayPlan, LockSite, Mode},
};
use fencegate_process::clock::{BootInstant, SharedClock};
use tokio::sync::watch;

use super::{
    id::LeaseId,
    state::{LeaseStage, LeaseState},
};
use crate::active_config::RequestToken;

pub use super::state::EndReason;

/// A lease of this gateway. Who has it in hand may ask it everything; who may do that is asked elsewhere.
pub struct Lease {
    pub id: LeaseId,
    /// Sorted, without doubles, at least one.
    pub keys: Arc<[ResourceKey]>,
    pub(super) sites: Vec<LockSite>,
    pub mode: Mode,
    /// The number of permits, if its client has given one.
    pub(super) permits: Option<Permits>,
    pub principal: Arc<str>,
    /// The client's note for those who ask who holds the key.
    pub note: Option<Arc<str>>,
    pub began: BootInstant,
    /// It becomes no older.
    ends: BootInstant,
    pub(super) ahead: Arc<WaitProgress>,
    clock: SharedClock,
    life: Mutex<LeaseState>,
    /// Counts the lease among the requests of its service, until its lock is given back. `None`: no request is forwarded
    /// by its client under the keys of a route.
    request: Mutex<Option<RequestToken>>,
    /// The names of the routes whose keys have changed since, by each reload that changed some.
    rekeyed: Mutex<Vec<Arc<HashSet<String>>>>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

/// The state of a lease when it ended.
pub(super) enum LeaseEnd {
    NeverHeld,
    /// It held its lock, for this long.
    Held(Duration),
}

/// The state of a lease at one moment.
#[derive(Debug, Clone)]
pub struct LeaseSnapshot {
    pub stage: StageSnapshot,
    pub ttl: Duration,
    /// Until it is over by itself; zero when it is.
    pub expires_in: Duration,
    pub revocation: Option<Arc<str>>,
    /// Grows with each change.
    pub revision: u64,
    pub age: Duration,
}

/// How far it has come.
#[derive(Debug, Clone)]
pub enum StageSnapshot {
    Waiting {
        ahead: usize,
    },
    Held {
        lock: Arc<LeasedLock>,
        held_for: Duration,
        since: Duration,
    },
    /// Its lock is kept for this long, because its client was promised that.
    Over {
        why: EndReason,
        kept_for: Duration,
    },
}

/// Why no request can run under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseLeaseError {
    /// It waits for its lock yet.
    Waiting,
    /// It is over, or its lock is.
    Over,
    /// Its session could not be proven in time.
    Unproven,
    /// It only reads.
    Upgrade,
}

/// The lease that a client asks for.
pub struct NewLease {
    pub keys: Arc<[ResourceKey]>,
    pub placed: LockPlacement,
    pub mode: Mode,
    pub permits: Option<Permits>,
    pub ttl: Duration,
    pub principal: Arc<str>,
    pub note: Option<Arc<str>>,
    /// It becomes no older.
    pub max_age: Duration,
    /// How long its client waits for the answer and cannot renew.
    pub unheard: Duration,
    /// For a request that another proxy forwards: a reload that gives its resource another key waits for the lease.
    pub request: Option<RequestToken>,
}

/// Where the locks of a lease are to lie, with what that was asked of: it is begun by no other plan, and by no other session.
pub struct LockPlacement {
    /// In the order of the keys.
    pub sites: Vec<LockSite>,
    pub plan: Arc<GatewayPlan>,
    /// Gateways lock these keys alike beside this one.
    pub session: i64,
}

impl Lease {
    pub(super) fn new(id: LeaseId, wanted: NewLease, clock: SharedClock) -> Self {
        let NewLease { keys, placed, mode, permits, ttl, principal, note, max_age, unheard, request } =
            wanted;
        let now = clock.now();
        let (ends, expires) = (now + max_age, now + ttl + unheard);
        let life = LeaseState {
            stage: LeaseStage::Waiting,
            ttl,
            expires: expires.min(ends),
            promised: now,
            revocation: None,
        };
        let (ahead, changes) = (Arc::default(), watch::Sender::new(1));
        Self {
            id,
            keys,
            sites: placed.sites,
            mode,
            permits,
            principal,
            note,
            began: now,
            ends,
            ahead,
            clock,
            life: Mutex::new(life),
            request: Mutex::new(request),
            rekeyed: Mutex::default(),
            changes,
        }
    }

    /// Another plan gives these routes other keys, from now on. To be called before a request begins by that plan.
    pub(super) fn mark_rekeyed(&self, routes: &Arc<HashSet<String>>) {
        self.rekeyed.lock().unwrap_or_else(PoisonError::into_inner).push(routes.clone());
    }

    /// True if the keys of this route have changed since the lease was begun. In between, requests for its resource may have
    /// run under another key, beside the lease and with newer tokens. Keys that are as before do not undo that.
    pub fn is_rekeyed(&self, route: &str) -> bool {
        let rekeyed = self.rekeyed.lock().unwrap_or_else(PoisonError::into_inner);
        rekeyed.iter().any(|routes| routes.contains(route))
    }

    fn lock_state(&self) -> MutexGuard<'_, LeaseState> {
        // Every change of it is one assignment.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }

    /// The lease has its lock. If the lease is over, the lock is released at once.
    pub(super) fn on_granted(&self, lock: LeasedLock) {
        let mut life = self.lock_state();
        let now = self.clock.now();
        if !matches!(life.stage, LeaseStage::Waiting) || life.lapse_reason(now, self.ends).is_some() {
            drop(life);
            return lock.release();
        }
        life.stage = LeaseStage::Held { lock: Arc::new(lock), since: now };
        life.expires = (now + life.ttl).min(self.ends);
        drop(life);
        self.notify_changed();
    }

    /// Ends it: nothing more is started under it. `None`: it was over.
    pub(super) fn end(&self, why: EndReason) -> Option<LeaseEnd> {
        self.end_with(|_| Some(why))
    }

    /// Ends it where it is over by itself; with why.
    pub(super) fn end_if_lapsed(&self) -> Option<(LeaseEnd, &'static str)> {
        let mut word = "";
        let ended = self.end_with(|life| {
            let why = life.lapse_reason(self.clock.now(), self.ends)?;
            word = why.as_str();
            Some(why)
        });
        ended.map(|ended| (ended, word))
    }

    fn end_with(&self, why: impl FnOnce(&LeaseState) -> Option<EndReason>) -> Option<LeaseEnd> {
        let mut life = self.lock_state();
        if matches!(life.stage, LeaseStage::Over { .. }) {
            return None;
        }
        let (why, now) = (why(&life)?, self.clock.now());
        // Its own client does not work under it any more. Of a lost set some nodes may be left, which were promised as well.
        let kept = !matches!(why, EndReason::Released) && now < life.promised;
        let over = LeaseStage::Over { why, at: now, lock: None };
        let (ended, lock) = match std::mem::replace(&mut life.stage, over) {
            LeaseStage::Held { lock, since } => (LeaseEnd::Held(now.since(since)), Some(lock)),
            LeaseStage::Waiting | LeaseStage::Over { .. } => (LeaseEnd::NeverHeld, None),
        };
        if let Some(lock) = &lock {
            lock.close();
        }
        let given = match (&mut life.stage, lock) {
            (LeaseStage::Over { lock: held, .. }, lock) if kept => {
                *held = lock;
                None
            }
            (_, lock) => lock,
        };
        drop(life);
        if let Some(lock) = given {
            lock.release();
        }
        if !kept {
            self.release_request();
        }
        self.notify_changed();
        Some(ended)
    }

    /// Gives the lock of a lease back that is over, when nobody has been promised any more of it. What runs under it goes on, and
    /// the lock is given on after that.
    pub(super) fn release_if_due(&self) {
        let mut life = self.lock_state();
        let due = self.clock.now() >= life.promised;
        let LeaseStage::Over { lock, .. } = &mut life.stage else { return };
        if !due {
            return;
        }
        let given = lock.take();
        drop(life);
        if let Some(lock) = given {
            lock.release();
        }
        self.release_request();
    }

    /// Reloads do not wait for this lease any more.
    fn release_request(&self) {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// It is not over before `ttl` from now, if nothing else ends it. `None`: it is over.
    pub fn renew(&self, ttl: Duration) -> Option<()> {
        let mut life = self.lock_state();
        // Under its mutex: whoever looks whether it is over sees the one or the other.
        let now = self.clock.now();
        if matches!(life.stage, LeaseStage::Over { .. }) || life.lapse_reason(now, self.ends).is_some() {
            return None;
        }
        (life.ttl, life.expires) = (ttl, (now + ttl).min(self.ends));
        Some(())
    }

    /// Somebody asks for it back. The first reason stays.
    pub fn revoke(&self, why: Arc<str>) {
        self.lock_state().revocation.get_or_insert(why);
        self.notify_changed();
    }

    pub fn is_over(&self) -> bool {
        matches!(self.lock_state().stage, LeaseStage::Over { .. })
    }

    /// How long the lease has been over; `None` before its end.
    pub(super) fn over_for(&self) -> Option<Duration> {
        match self.lock_state().stage {
            LeaseStage::Over { at, lock: None, .. } => Some(self.clock.now().since(at)),
            LeaseStage::Over { .. } => Some(Duration::ZERO),
            LeaseStage::Waiting | LeaseStage::Held { .. } => None,
        }
    }

    /// It waits for its lock, or that is not given back yet.
    pub fn may_hold(&self) -> bool {
        self.over_for().is_none_or(|over| over.is_zero())
    }

    /// For its client, who believes it: what is said to be held stays held for so long, whatever ends the lease.
    pub fn promised_snapshot(&self) -> LeaseSnapshot {
        self.snapshot_with(true)
    }

    pub fn snapshot(&self) -> LeaseSnapshot {
        self.snapshot_with(false)
    }

    fn snapshot_with(&self, promises: bool) -> LeaseSnapshot {
        let revision = *self.changes.borrow();
        let mut life = self.lock_state();
        let now = self.clock.now();
        let expires_in = life.expires.since(now);
        let stage = match &life.stage {
            LeaseStage::Waiting => StageSnapshot::Waiting { ahead: self.ahead.nodes_ahead() },
            LeaseStage::Held { lock, since } => {
                let proven = if lock.is_held_at(now) { lock.expires_at().since(now) } else { Duration::ZERO };
                StageSnapshot::Held {
                    lock: lock.clone(),
                    held_for: proven.min(expires_in),
                    since: now.since(*since),
                }
            }
            LeaseStage::Over { why, lock, .. } => {
                let kept_for = lock.as_ref().map(|_| life.promised.since(now)).unwrap_or_default();
                StageSnapshot::Over { why: why.clone(), kept_for }
            }
        };
        if let (StageSnapshot::Held { held_for, .. }, true) = (&stage, promises) {
            life.promised = life.promised.max(now + *held_for);
        }
        LeaseSnapshot {
            expires_in: if matches!(stage, StageSnapshot::Over { .. }) { Duration::ZERO } else { expires_in },
            stage,
            ttl: life.ttl,
            revocation: life.revocation.clone(),
            revision,
            age: now.since(self.began),
        }
    }

    /// Returns when it is not what it was at `revision` any more.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub async fn wait_changed(&self, revision: u64) {
        let mut changes = self.changes.subscribe();
        // The sender is ours.
        drop(changes.wait_for(|now| *now != revision).await);
    }

    /// Returns when the lease no longer waits.
    pub async fn wait_decided(&self) {
        let mut changes = self.changes.subscribe();
        drop(changes.wait_for(|_| !matches!(self.lock_state().stage, LeaseStage::Waiting)).await);
    }

    /// As guards, tickets and services see its keys: whoever has one of several permits has marks of its own.
    pub fn shown_keys(&self, lock: &LeasedLock) -> Vec<ResourceKey> {
        lock.permit()
            .map_or_else(|| self.keys.to_vec(), |permit| ResourceKey::all_for_permit(&self.keys, permit))
    }

    /// The tenure for a request under the lease, and its mode. A writer waits for its turn.
    ///
    /// # Cancellation
    /// Dropping the future gives up the turn.
    pub async fn enter(&self, mode: Mode) -> Result<(GrantGuard, Mode), UseLeaseError> {
        let lock = self.held_lock()?;
        let entered = lock.start_request(mode).await;
        // Its turn may have come after its end, and before anybody has said so.
        self.held_lock()?;
        entered.map_err(|why| match why {
            CallbackError::Unproven => UseLeaseError::Unproven,
            CallbackError::Upgrade => UseLeaseError::Upgrade,
            _ => UseLeaseError::Over,
        })
    }

    fn held_lock(&self) -> Result<Arc<LeasedLock>, UseLeaseError> {
        let life = self.lock_state();
        match &life.stage {
            LeaseStage::Waiting => Err(UseLeaseError::Waiting),
            LeaseStage::Held { lock, .. } if life.lapse_reason(self.clock.now(), self.ends).is_none() => {
                Ok(lock.clone())
            }
            LeaseStage::Held { .. } | LeaseStage::Over { .. } => Err(UseLeaseError::Over),
        }
    }
}

/// Where the lock of `key` lies for a client that has said how many may hold it; the plan has it at `site`.
pub fn site_for_permits(site: LockSite, key: &ResourceKey, permits: Option<Permits>) -> LockSite {
    match (site, permits) {
        (LockSite::Native, Some(permits)) => LockSite::semaphore(key, permits).unwrap_or_default(),
        (site, _) => site,
    }
}
