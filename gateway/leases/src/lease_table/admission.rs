//! Admits requests for leases: a new lease within the policy's bounds, or, for a repeat, the lease of the request that it
//! repeats.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fencegate_policies::plan::{self, GatewayPlan};
use fencegate_process::randomness::SystemRandomness;
use fencegate_protocol::lease_id::LeaseId;
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::session::paths::ZkPaths;

use super::{
    super::{
        auth::may_take,
        command::LeaseThreadCommand,
        context::LeaseContext,
        lease::{Lease, LeaseEndReason, LeaseIdempotencyKey, LeaseSpec},
    },
    LeaseTable,
};

/// Counts one request among those that may be answered with a lease, until its answer is made. When the last of
/// them is dropped and the id of the lease is in no answer, the lease ends.
#[must_use = "dropping it may end the lease"]
pub(crate) struct UndeliveredLeaseGuard {
    leases: Arc<LeaseTable>,
    lease: Arc<Lease>,
}

impl UndeliveredLeaseGuard {
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Gives up the lease for this request. Returns true if the lease goes on without the request.
    pub(crate) fn give_up(self) -> bool {
        let lease = self.lease.clone();
        drop(self);
        !lease.is_over()
    }
}

impl Drop for UndeliveredLeaseGuard {
    fn drop(&mut self) {
        let why = LeaseEndReason::GaveUp;
        let word = why.as_str();
        if let Some(ended) = self.lease.remove_pending_request(why) {
            self.leases.record_end(&self.lease, ended, word);
        }
    }
}

impl LeaseTable {
    /// Begins to wait for the lock; no longer than `wait`, and not at all if that is zero. If a lease has the name of the
    /// request already, the request joins that lease, whose wait goes on as it was.
    ///
    /// # Errors
    /// Returns an error if there are too many leases, if no client could be granted a lock now, or if the
    /// request has the name of another one or of a lease that is over.
    pub(crate) fn begin(
        self: &Arc<Self>,
        wanted: LeaseSpec,
        wait: Duration,
    ) -> Result<UndeliveredLeaseGuard, Refusal> {
        if self.drain().is_cancelled() {
            return Err(Refusal::new(
                RefusalReason::Draining,
                "a lease is asked for while the gateway stops",
            ));
        }
        // The lease is granted only by the session that its id names, so that is the session that was checked.
        let LeaseContext { process, gateway, .. } = &self.context;
        let id = LeaseId::new(ZkPaths::member_name(gateway, wanted.placed.session), &SystemRandomness);
        let plan = wanted.placed.plan.clone();
        let lease = Arc::new(Lease::new(id, wanted, process.clock.clone()));
        // Each turn of the loop is for a lease that has ended in between, and that nobody has used.
        while let Some(named) = self.find_named_or_insert(&lease, &plan)? {
            if let Some(delivery) = self.join(named, lease.name.as_ref())? {
                return Ok(delivery);
            }
        }
        let delivery = UndeliveredLeaseGuard { leases: self.clone(), lease };
        self.send(LeaseThreadCommand::Acquire { lease: delivery.lease.clone(), wait })
            .inspect_err(|_| self.end(&delivery.lease, LeaseEndReason::Lost))?;
        Ok(delivery)
    }

    /// The lease of the request that is repeated under a name. `None`: there is none, or it has ended and no client can
    /// have used it, so that a repeat gets another one.
    ///
    /// # Errors
    /// Returns an error if the name is that of another request, or if the lease is over and its client may have
    /// worked under it: such a lease is never granted a second time.
    pub(crate) fn find_repeated(
        self: &Arc<Self>,
        principal: &Arc<str>,
        name: &LeaseIdempotencyKey,
    ) -> Result<Option<UndeliveredLeaseGuard>, Refusal> {
        let found = self.lock_index().find_by_idempotency_key(principal, &name.key);
        found.map_or(Ok(None), |lease| self.join(lease, Some(name)))
    }

    fn join(
        self: &Arc<Self>,
        lease: Arc<Lease>,
        name: Option<&LeaseIdempotencyKey>,
    ) -> Result<Option<UndeliveredLeaseGuard>, Refusal> {
        if lease.name.as_ref() != name {
            let message = "the name of another request for a lease";
            return Err(Refusal::new(RefusalReason::IdempotencyMismatch, message));
        }
        // The sweep may not have noticed yet that the time of the lease is over.
        self.end_if_lapsed(&lease);
        if lease.add_pending_request() {
            return Ok(Some(UndeliveredLeaseGuard { leases: self.clone(), lease }));
        }
        if lease.ended_unused() { Ok(None) } else { Err(used_lease_refusal()) }
    }

    /// Returns the lease that has the name of this one already; else `None`, and this lease is admitted. `plan`: the plan
    /// by which the request for the lease was checked.
    pub(super) fn find_named_or_insert(
        &self,
        lease: &Arc<Lease>,
        plan: &Arc<GatewayPlan>,
    ) -> Result<Option<Arc<Lease>>, Refusal> {
        let mut all = self.lock_index();
        // The check is under the mutex, because a switch to another plan sets the flag before it reads the
        // existing leases. Peers have received this plan, and the next one may grant the same by patterns that
        // they have not received yet.
        if self.switching.load(Ordering::Acquire) || !Arc::ptr_eq(plan, &self.config().plan()) {
            return Err(Refusal::new(RefusalReason::LockService, "another plan is being taken over"));
        }
        let settings = self.settings();
        let Some(bounds) = &settings.bounds else {
            return Err(Refusal::new(RefusalReason::NoRoute, "the policy has no `leases`"));
        };
        // The caller was authenticated before the plan was read, so its keys are checked again.
        let grants =
            |known: &plan::LeasePrincipal| *known.name == *lease.principal && may_take(known, &lease.keys);
        if !bounds.principals.iter().any(grants) {
            let message = format!("`{}` may not take these keys any more", lease.principal);
            return Err(Refusal::new(RefusalReason::LeaseForbidden, message));
        }
        // The name is looked up before the bounds are checked, because a repeat needs no lease of its own, and
        // under the mutex, because two requests may come at once.
        let name = lease.name.as_ref();
        if let Some(named) = name.and_then(|name| all.find_by_idempotency_key(&lease.principal, &name.key)) {
            return Ok(Some(named));
        }
        let living: usize = all.living.values().sum();
        let theirs = all.living.get(&lease.principal).copied().unwrap_or_default();
        if living >= bounds.most || theirs >= bounds.per_principal {
            let message = format!("`{}` has its leases, or this gateway has", lease.principal);
            return Err(Refusal::new(RefusalReason::LeaseLimit, message));
        }
        all.insert(lease);
        Ok(None)
    }
}

/// The refusal of a repeat whose lease is over.
pub(crate) fn used_lease_refusal() -> Refusal {
    Refusal::new(
        RefusalReason::StaleToken,
        "the lease that was granted under this `Idempotency-Key` is over: ask for another one under a new name",
    )
}
