//! Tells the other gateways which locks a plan takes and grants, and not before all is over that took others.
//!
//! *No gateway locks a key, or leases it, under another lock than the others were told of.* So a route is told when all is over
//! that took its requests under other locks. A pattern of leases is told for as long as a lease may hold the lock of one of its keys,
//! whatever plan it was granted by: another plan is taken over only where it has the locks of all these leases where they are.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_lock::session::{local_member::LocalMember, plan_publication::PlanPublication};
use fencegate_policies::{
    key::ResourceKey,
    plan::{GatewayPlan, Plan},
    plan_digest::PlanDigest,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    active_config::KeyGeneration,
    leases::{ConfigSwitchGuard, lease::Lease},
    plan_compat::PlanCompat,
};

/// Publishes each new plan for the other gateways.
pub struct PlanPublisher {
    nameplate: LocalMember,
    agreement: Arc<PlanCompat>,
    told: Arc<Mutex<PublishedState>>,
    /// Publishes the routes of the last plan when all is over that took other locks.
    waiting: Option<JoinHandle<()>>,
}

struct PublishedState {
    /// The plan that other gateways see.
    now: PlanDigest,
    /// Of the plan in force.
    latest: PlanDigest,
    /// How many plans were in force.
    plans: u64,
}

/// How often it is looked whether leases of withdrawn patterns are over.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl PlanPublisher {
    /// Of a process that has published this plan.
    pub fn new(nameplate: LocalMember, agreement: Arc<PlanCompat>, gateway: &GatewayPlan) -> Self {
        let now = PlanDigest::from_plan(&gateway.serving, gateway.leases.as_ref());
        let told = PublishedState { latest: now.clone(), now, plans: 1 };
        Self { nameplate, agreement, told: Arc::new(Mutex::new(told)), waiting: None }
    }

    /// `plan` is in force. `left`: terms in which requests began under locks that it does not know any more. Until they are
    /// over, others have to give way to those locks; what takes the same locks as before is told at once. `leases`: as they are taken
    /// over. Others have to give way to those that are there, each until its end, and no route waits for that.
    pub fn publish(
        &mut self,
        plan: &Plan,
        leases: Option<&ConfigSwitchGuard<'_>>,
        left: Vec<Arc<KeyGeneration>>,
    ) {
        let terms = leases.map(ConfigSwitchGuard::settings);
        let next = PlanDigest::from_plan(plan, terms.as_ref().and_then(|terms| terms.bounds.as_ref()));
        let held = leases.map(ConfigSwitchGuard::held_leases).unwrap_or_default();
        // Before anything else of it is told: a session that turns asks who is leased what.
        self.agreement.set_leases(&next, keys(&held));
        let (told, nameplate, agreement) =
            (self.told.clone(), self.nameplate.clone(), self.agreement.clone());
        let turn = {
            let mut told = lock(&told);
            told.latest = next.clone();
            told.plans += 1;
            let now = told.now.during_switch_to(&next);
            told.set_published(now, &nameplate);
            told.plans
        };
        let before = self.waiting.take();
        self.waiting = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // It only fails when the process ends.
                before.await.ok();
            }
            for term in left {
                term.wait_finished().await;
            }
            {
                let mut told = lock(&told);
                // Another plan may have come since, and its own terms are not over yet.
                let next = next.during_switch_to(&told.latest).with_leases_of(&told.now);
                told.set_published(next, &nameplate);
            }
            // The next plan's routes do not wait for leases.
            drop(tokio::spawn(forget_leases((told, nameplate, agreement), turn, held)));
        }));
    }
}

/// Gives way less and less, as the leases end that are `held`: all that are of plans before the one in force. What that does not lease
/// any more is told no longer. Where another plan comes into force, its own task does that.
async fn forget_leases(
    (told, nameplate, agreement): (Arc<Mutex<PublishedState>>, LocalMember, Arc<PlanCompat>),
    turn: u64,
    mut held: Vec<Arc<Lease>>,
) {
    loop {
        let before = held.len();
        held.retain(|lease| lease.may_hold());
        {
            let mut told = lock(&told);
            if told.plans != turn {
                return;
            }
            let keys = keys(&held);
            let next = told.now.without_leases_gone_in(&told.latest, &keys);
            told.set_published(next, &nameplate);
            if held.len() < before {
                agreement.set_leases(&told.latest, keys);
            }
        }
        if held.is_empty() {
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn keys(held: &[Arc<Lease>]) -> Vec<ResourceKey> {
    held.iter().flat_map(|lease| lease.keys.iter()).cloned().collect()
}

fn lock(told: &Mutex<PublishedState>) -> MutexGuard<'_, PublishedState> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PublishedState {
    fn set_published(&mut self, next: PlanDigest, nameplate: &LocalMember) {
        if mem::replace(&mut self.now, next) != self.now {
            nameplate.publish(PlanPublication::from_bytes(self.now.to_bytes()));
        }
    }
}
