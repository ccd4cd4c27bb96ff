//! All leases of this gateway. [`admission`] begins them within the policy's bounds; this module finds them, and ends
//! those whose time is over.

pub(crate) mod admission;
pub mod config_switch;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwap;
use fencegate_config::{bearer::BearerTokenFileError, current_config::CurrentConfig};
use fencegate_policies::{
    key::ResourceKey,
    plan::{self, LockLocation, LockMode},
};
use fencegate_protocol::lease_id::{LeaseId, LeaseReference};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::session::paths::ZkPaths;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    auth::LeaseAuth,
    command::LeaseThreadCommand,
    context::LeaseContext,
    election_watch::ElectionWatches,
    lease::{EndedLeaseHoldTime, Lease, LeaseEndReason, LeaseStageSnapshot},
};

/// The leases of one process. No lease is granted while the plan has no `leases`; existing leases continue.
pub struct LeaseTable {
    pub(super) context: LeaseContext,
    all: Mutex<LeaseIndex>,
    settings: ArcSwap<LeaseSettings>,
    /// The commands for the thread that takes the locks of leases.
    commands: mpsc::UnboundedSender<LeaseThreadCommand>,
    mean_hold: Mutex<MeanHoldTime>,
    /// Whether another plan is being taken over. While it is, new requests are refused with the advice to retry.
    switching: AtomicBool,
    /// The elections with followers, over all workers.
    pub(super) elections: ElectionWatches,
}

/// All leases, and the ways to find one.
#[derive(Default)]
struct LeaseIndex {
    /// By reference. Leases stay here for some time after their end.
    leases: HashMap<LeaseReference, Arc<Lease>>,
    /// The number of leases that are not over, by principal.
    living: HashMap<Arc<str>, usize>,
    /// The leases that are not over, by key.
    keys: HashMap<ResourceKey, Vec<Arc<Lease>>>,
    /// The leases that are over, the first to end first.
    over: VecDeque<Arc<Lease>>,
    /// By principal and name. A lease that is over stays here for as long as it is remembered, if a client may have
    /// worked under it.
    named: HashMap<(Arc<str>, Arc<str>), LeaseReference>,
}

/// The settings of a plan for leases.
pub struct LeaseSettings {
    /// `None`: no lease is granted.
    pub bounds: Option<plan::LeaseGrantSettings>,
    pub authority: LeaseAuth,
}

/// The usual time for which leases hold their locks, estimated from recent leases.
#[derive(Debug, Default)]
struct MeanHoldTime(Option<Duration>);

/// The interval at which expired leases are ended. Requests under a lease check the expiry of the lease
/// themselves.
const SWEEP_INTERVAL: Duration = Duration::from_millis(200);
/// The time for which a client can look up the reason for which its lease is over.
const RETENTION: Duration = Duration::from_secs(60);
/// The most ended leases that are remembered. Beyond that the oldest ones are forgotten early.
const MAX_RETAINED: usize = 10_000;

impl LeaseSettings {
    /// The settings of a plan, with the credentials of its principals.
    ///
    /// # Errors
    /// Returns an error if a file with a token cannot be used.
    pub fn from_plan(leases: Option<&plan::LeaseGrantSettings>) -> Result<Self, BearerTokenFileError> {
        Ok(Self { bounds: leases.cloned(), authority: LeaseAuth::load(leases)? })
    }
}

impl LeaseTable {
    pub(super) fn new(
        context: LeaseContext,
        commands: mpsc::UnboundedSender<LeaseThreadCommand>,
        settings: LeaseSettings,
    ) -> Self {
        // The thread has not begun yet, so the command waits in the channel.
        commands.send(LeaseThreadCommand::FollowCredentials(settings.authority.clone())).ok();
        Self {
            context,
            all: Mutex::default(),
            settings: ArcSwap::from_pointee(settings),
            commands,
            mean_hold: Mutex::default(),
            switching: AtomicBool::new(false),
            elections: ElectionWatches::default(),
        }
    }

    /// The plan in force.
    pub fn config(&self) -> &CurrentConfig {
        &self.context.config
    }

    /// Cancelled when the process drains.
    pub(super) fn drain(&self) -> &CancellationToken {
        &self.context.process.drain
    }

    /// The settings of the plan in force for leases.
    pub fn settings(&self) -> Arc<LeaseSettings> {
        self.settings.load_full()
    }

    /// Sends a command to the thread of the leases.
    ///
    /// # Errors
    /// Returns an error if the thread has ended, because the process stops.
    pub(super) fn send(&self, command: LeaseThreadCommand) -> Result<(), Refusal> {
        self.commands
            .send(command)
            .map_err(|_| Refusal::new(RefusalReason::Draining, "the gateway is stopping"))
    }

    fn lock_index(&self) -> MutexGuard<'_, LeaseIndex> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a lease by its id.
    ///
    /// # Errors
    /// Returns an error if there is no such lease here, or if the secret differs.
    pub fn find(&self, id: &LeaseId) -> Result<Arc<Lease>, Refusal> {
        let found = self.look_up(id.reference());
        let found =
            found.ok_or_else(|| Refusal::new(RefusalReason::StaleToken, "a lease that nobody here knows"))?;
        if found.id.matches(id) {
            Ok(found)
        } else {
            Err(Refusal::new(RefusalReason::LeaseForbidden, "the secret of the lease is another one"))
        }
    }

    /// A lease by its reference.
    pub fn look_up(&self, reference: LeaseReference) -> Option<Arc<Lease>> {
        self.lock_index().leases.get(&reference).cloned()
    }

    /// True if the session that holds the lease belongs to this process, as far as that is known without a query.
    pub fn is_local(&self, id: &LeaseId) -> bool {
        self.look_up(id.reference()).is_some()
    }

    /// The leases that are not over, the oldest first.
    pub fn active(&self) -> Vec<Arc<Lease>> {
        let mut living: Vec<_> =
            self.lock_index().leases.values().filter(|lease| !lease.is_over()).cloned().collect();
        living.sort_by_key(|lease| (lease.began, lease.id.reference()));
        living
    }

    /// Keys of leases that are remembered, each once or more.
    pub fn remembered_keys(&self, wanted: impl Fn(&ResourceKey) -> bool) -> Vec<ResourceKey> {
        let all = self.lock_index();
        let keys = all.leases.values().flat_map(|lease| lease.keys.iter());
        keys.filter(|key| wanted(key)).cloned().collect()
    }

    /// The lease that holds this key here exclusively.
    pub fn holder(&self, key: &ResourceKey) -> Option<Arc<Lease>> {
        let holds = |lease: &&Arc<Lease>| {
            lease.mode == LockMode::Exclusive
                && matches!(lease.snapshot().stage, LeaseStageSnapshot::Held { .. })
        };
        self.lock_index().keys.get(key)?.iter().find(holds).cloned()
    }

    /// Ends a lease, and records how long it held its lock.
    pub fn end(&self, lease: &Arc<Lease>, why: LeaseEndReason) {
        self.try_end(lease, why);
    }

    /// Ends a lease. Returns false if it was over before.
    pub(super) fn try_end(&self, lease: &Arc<Lease>, why: LeaseEndReason) -> bool {
        let word = why.as_str();
        let ended = lease.end(why);
        let ends = ended.is_some();
        if let Some(ended) = ended {
            self.record_end(lease, ended, word);
        }
        ends
    }

    /// Ends a lease whose time is over.
    pub(super) fn end_if_lapsed(&self, lease: &Arc<Lease>) {
        if let Some((ended, why)) = lease.end_if_lapsed() {
            self.record_end(lease, ended, why);
        }
    }

    fn record_end(&self, lease: &Arc<Lease>, ended: EndedLeaseHoldTime, why: &'static str) {
        if let EndedLeaseHoldTime::Held(held) = ended {
            self.mean_hold.lock().unwrap_or_else(PoisonError::into_inner).add_sample(held);
        }
        self.lock_index().mark_ended(lease);
        info!(lease = %lease.id.reference(), principal = &*lease.principal, why, "lease.over");
        self.context.process.metrics.leases().record_end(why);
    }

    /// The location of a key's lock: that of its lease if it has one, else that of the plan.
    pub(super) fn effective_site(&self, key: &ResourceKey) -> LockLocation {
        let leased = self.lock_index().keys.get(key).and_then(|all| {
            let lease = all.first()?;
            lease.keys.iter().zip(&lease.sites).find(|(other, _)| *other == key).map(|(_, site)| site.clone())
        });
        leased.unwrap_or_else(|| self.config().site(key))
    }

    /// The expected wait of a waiter with so many waiters before it; `None` if no lease has ended yet.
    pub(crate) fn expected_wait(&self, ahead: usize) -> Option<Duration> {
        let mean = self.mean_hold.lock().unwrap_or_else(PoisonError::into_inner).0?;
        Some(mean.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)))
    }

    /// Ends expired leases, as long as the process lives.
    pub(super) async fn run_lease_expiry(&self) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let all: Vec<_> = self.lock_index().leases.values().cloned().collect();
            let mut waiting = 0;
            let mut held = 0;
            for lease in all {
                self.end_if_lapsed(&lease);
                match lease.snapshot().stage {
                    LeaseStageSnapshot::Waiting { .. }
                        if self.drain().is_cancelled() || self.has_session_changed(&lease) =>
                    {
                        self.end(&lease, LeaseEndReason::Lost);
                    }
                    LeaseStageSnapshot::Waiting { .. } => waiting += 1,
                    LeaseStageSnapshot::Held { .. } => held += 1,
                    LeaseStageSnapshot::Over { .. } => lease.release_if_due(),
                }
            }
            self.context.process.metrics.leases().set_counts(waiting, held);
            self.lock_index().evict();
        }
    }

    /// True if the lease waits in another session than its id names, so that a peer would not find it.
    fn has_session_changed(&self, lease: &Lease) -> bool {
        let LeaseContext { locks, gateway, .. } = &self.context;
        let session = locks.session_id_for(&lease.keys[0]);
        session.is_some_and(|session| ZkPaths::member_name(gateway, session) != lease.id.lease_member_node())
    }
}

impl LeaseIndex {
    /// The lease that a principal was granted, or waits for, under a name. `None` if that lease is over and no
    /// client can have used it, so that a repeat gets another one.
    fn find_by_idempotency_key(&self, principal: &Arc<str>, key: &Arc<str>) -> Option<Arc<Lease>> {
        let reference = self.named.get(&(principal.clone(), key.clone()))?;
        self.leases.get(reference).filter(|lease| !lease.ended_unused()).cloned()
    }

    /// Forgets the name of a lease, unless another one has it by now.
    fn forget_name(&mut self, lease: &Lease) {
        let Some(name) = &lease.name else { return };
        let named = (lease.principal.clone(), name.key.clone());
        if self.named.get(&named) == Some(&lease.id.reference()) {
            self.named.remove(&named);
        }
    }

    fn insert(&mut self, lease: &Arc<Lease>) {
        self.leases.insert(lease.id.reference(), lease.clone());
        if let Some(name) = &lease.name {
            self.named.insert((lease.principal.clone(), name.key.clone()), lease.id.reference());
        }
        *self.living.entry(lease.principal.clone()).or_default() += 1;
        for key in lease.keys.iter() {
            self.keys.entry(key.clone()).or_default().push(lease.clone());
        }
    }

    fn mark_ended(&mut self, lease: &Arc<Lease>) {
        if let Some(living) = self.living.get_mut(&lease.principal) {
            *living -= 1;
        }
        self.living.retain(|_, living| *living > 0);
        for key in lease.keys.iter() {
            if let Some(all) = self.keys.get_mut(key) {
                all.retain(|one| !Arc::ptr_eq(one, lease));
            }
            if self.keys.get(key).is_some_and(Vec::is_empty) {
                self.keys.remove(key);
            }
        }
        if lease.ended_unused() {
            self.forget_name(lease);
        }
        self.over.push_back(lease.clone());
    }

    /// Removes leases that ended some time ago; earlier if there are very many. Leases whose lock is still held stay.
    fn evict(&mut self) {
        while let Some(first) = self.over.front() {
            let over = first.over_for().unwrap_or_default();
            let old = over >= RETENTION || (self.over.len() > MAX_RETAINED && !over.is_zero());
            if !old {
                return;
            }
            if let Some(first) = self.over.pop_front() {
                self.leases.remove(&first.id.reference());
                self.forget_name(&first);
            }
        }
    }
}

impl MeanHoldTime {
    /// Gives the newest time an eighth of the weight, as the round-trip time of TCP is smoothed (RFC 6298, 2.3).
    fn add_sample(&mut self, held: Duration) {
        self.0 = Some(self.0.map_or(held, |before| before * 7 / 8 + held / 8));
    }
}

#[cfg(test)]
pub(crate) mod tests;
