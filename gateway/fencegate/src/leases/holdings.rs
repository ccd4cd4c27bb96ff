//! All leases of this gateway: begins them, within bounds, finds them, and ends those that are over by themselves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use fencegate_lock::{session::paths::Paths, tenures::keeper::Keeper};
use fencegate_policies::{key::ResourceKey, plan};
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    authority::Authority,
    id::{LeaseId, Reference},
    lease::{Ended, Lease, Stood, Wanted, Why},
    task::Task,
};
use crate::{
    bearer::BadBearer,
    metrics::LeaseMetrics,
    refusal::{Reason, Refusal},
};

/// The leases of one process. Nobody is granted one while the plan has no `leases`; those that are there go on.
pub struct Leases {
    /// By what they are called: until some time after their end.
    all: Mutex<HashMap<Reference, Arc<Lease>>>,
    terms: ArcSwap<LeaseTerms>,
    pub(super) gateway: Arc<str>,
    pub(super) keeper: Keeper,
    clock: SharedClock,
    /// For the thread that takes their locks.
    tasks: mpsc::UnboundedSender<Task>,
    drain: CancellationToken,
    metrics: LeaseMetrics,
    usual: Mutex<Usual>,
}

/// What a plan says of leases.
pub struct LeaseTerms {
    /// `None`: nobody is granted one.
    pub bounds: Option<plan::Leases>,
    pub authority: Authority,
}

/// For how long leases hold their locks, by those that ended last.
#[derive(Debug, Default)]
struct Usual(Option<Duration>);

/// How often it is looked whose time is over. What runs under a lease looks for itself.
const LOOK: Duration = Duration::from_millis(200);
/// For so long a client is told why its lease is over.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What the table works with.
pub(super) struct HoldingsParts {
    pub(super) gateway: Arc<str>,
    pub(super) keeper: Keeper,
    pub(super) clock: SharedClock,
    pub(super) tasks: mpsc::UnboundedSender<Task>,
    pub(super) drain: CancellationToken,
    pub(super) metrics: LeaseMetrics,
}

impl LeaseTerms {
    /// # Errors
    /// A file with a token cannot be used.
    pub fn open(leases: Option<&plan::Leases>) -> Result<Self, BadBearer> {
        Ok(Self { bounds: leases.cloned(), authority: Authority::of(leases)? })
    }
}

impl Leases {
    pub(super) fn new(parts: HoldingsParts, terms: LeaseTerms) -> Self {
        let HoldingsParts { gateway, keeper, clock, tasks, drain, metrics } = parts;
        let (all, usual, followed) = (Mutex::default(), Mutex::default(), terms.authority.clone());
        let leases = Self {
            all,
            terms: ArcSwap::from_pointee(terms),
            gateway,
            keeper,
            clock,
            tasks,
            drain,
            metrics,
            usual,
        };
        // The thread has not begun yet.
        leases.tasks.send(Task::Follow(followed)).ok();
        leases
    }

    /// Another plan is in force.
    pub fn turn_to(&self, terms: LeaseTerms) {
        // Fails where the process stops.
        self.tasks.send(Task::Follow(terms.authority.clone())).ok();
        self.terms.store(Arc::new(terms));
    }

    /// What the plan in force says of leases.
    pub fn terms(&self) -> Arc<LeaseTerms> {
        self.terms.load_full()
    }

    /// # Errors
    /// The thread has ended: the process stops.
    pub(super) fn give(&self, task: Task) -> Result<(), Refusal> {
        self.tasks.send(task).map_err(|_| Refusal::new(Reason::Draining, "the gateway is stopping"))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Reference, Arc<Lease>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for the lock; no longer than `wait`, where that is said, and not at all where it is zero.
    ///
    /// # Errors
    /// There are too many, or no lock could be had now by anybody.
    pub fn begin(&self, wanted: Wanted, wait: Duration) -> Result<Arc<Lease>, Refusal> {
        if self.drain.is_cancelled() {
            return Err(Refusal::new(Reason::Draining, "a lease is asked for while the gateway stops"));
        }
        let session = self.keeper.session_of(&wanted.keys[0]).ok_or_else(|| {
            Refusal::new(Reason::LockService, "there is no session that the lock could be taken by")
        })?;
        let id = LeaseId::new(Paths::member_name(&self.gateway, session), &SystemRandomness);
        let lease = Arc::new(Lease::new(id, wanted, self.clock.clone()));
        self.admit(&lease)?;
        self.give(Task::Take { lease: lease.clone(), wait }).inspect_err(|_| self.end(&lease, Why::Lost))?;
        Ok(lease)
    }

    fn admit(&self, lease: &Arc<Lease>) -> Result<(), Refusal> {
        let terms = self.terms();
        let Some(bounds) = &terms.bounds else {
            return Err(Refusal::new(Reason::NoRoute, "the policy has no `leases`"));
        };
        let mut all = self.all();
        let full = |all: &HashMap<Reference, Arc<Lease>>| {
            let living = || all.values().filter(|one| !one.is_over());
            let theirs = || living().filter(|one| one.principal == lease.principal).count();
            // Only who is near a bound is counted.
            all.len() >= bounds.per_principal
                && (living().count() >= bounds.most || theirs() >= bounds.per_principal)
        };
        if full(&all) {
            let said = format!("`{}` has its leases, or this gateway has", lease.principal);
            return Err(Refusal::new(Reason::LeaseLimit, said));
        }
        all.insert(lease.id.reference(), lease.clone());
        Ok(())
    }

    /// The lease that this id is of.
    ///
    /// # Errors
    /// There is none here, or the secret is another one.
    pub fn find(&self, id: &LeaseId) -> Result<Arc<Lease>, Refusal> {
        let found = self.look_up(id.reference());
        let found =
            found.ok_or_else(|| Refusal::new(Reason::StaleToken, "a lease that nobody here knows"))?;
        if found.id.is(id) {
            Ok(found)
        } else {
            Err(Refusal::new(Reason::LeaseForbidden, "the secret of the lease is another one"))
        }
    }

    /// By what operators call it.
    pub fn look_up(&self, reference: Reference) -> Option<Arc<Lease>> {
        self.all().get(&reference).cloned()
    }

    /// The session that holds the lease is one of this process, as far as can be told without asking anybody.
    pub fn is_here(&self, id: &LeaseId) -> bool {
        self.look_up(id.reference()).is_some()
    }

    /// Those that are not over, the oldest first.
    pub fn living(&self) -> Vec<Arc<Lease>> {
        let mut living: Vec<_> = self.all().values().filter(|lease| !lease.is_over()).cloned().collect();
        living.sort_by_key(|lease| (lease.began, lease.id.reference()));
        living
    }

    /// Whoever holds this key here.
    pub fn holder(&self, key: &ResourceKey) -> Option<Arc<Lease>> {
        let holds = |lease: &&Arc<Lease>| {
            lease.keys.contains(key) && matches!(lease.glance().stage, Stood::Held { .. })
        };
        self.all().values().find(holds).cloned()
    }

    /// Ends a lease, and notes how long such leases hold.
    pub fn end(&self, lease: &Lease, why: Why) {
        let word = why.word();
        match lease.end(why) {
            None => return,
            Some(Ended::Held(held)) => self.usual.lock().unwrap_or_else(PoisonError::into_inner).note(held),
            Some(Ended::Waited) => {}
        }
        let (reference, why) = (lease.id.reference(), word);
        info!(lease = %reference, principal = &*lease.principal, why, "lease.over");
        self.metrics.ended(why);
    }

    /// For how long somebody waits who has so many before him; `None` where no lease has ended yet.
    pub fn expected_wait(&self, ahead: usize) -> Option<Duration> {
        let usual = self.usual.lock().unwrap_or_else(PoisonError::into_inner).0?;
        Some(usual.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)))
    }

    /// Ends what is over by itself, for as long as the process lives.
    pub(super) async fn sweep(&self) {
        loop {
            sleep(LOOK).await;
            let oldest = self.terms().bounds.as_ref().map_or(Duration::MAX, |bounds| bounds.max_age);
            let all: Vec<_> = self.all().values().cloned().collect();
            let (mut waiting, mut held) = (0, 0);
            for lease in all {
                if let Some(why) = lease.lapses(oldest) {
                    self.end(&lease, why);
                }
                match lease.glance().stage {
                    Stood::Waiting { .. } => waiting += 1,
                    Stood::Held { .. } => held += 1,
                    Stood::Over { .. } => {}
                }
            }
            self.metrics.there_are(waiting, held);
            self.all().retain(|_, lease| lease.over_for().is_none_or(|over| over < REMEMBERED));
        }
    }
}

impl Usual {
    /// An eighth of the newest, as the round-trip time of TCP is smoothed (RFC 6298, 2.3).
    fn note(&mut self, held: Duration) {
        self.0 = Some(self.0.map_or(held, |before| before * 7 / 8 + held / 8));
    }
}
