//! Publishes to the other gateways which locks a plan takes and grants, after every request and lease with other
//! locks is over.
//!
//! *No gateway locks a key, or leases it, under another lock than the one that is published.* So a route is published
//! when all requests are over that took other locks for it. A lease pattern is published for as long as a lease may
//! hold the lock of one of its keys, whatever plan granted that lease: another plan is put in force only if it has
//! the locks of all these leases in the same place.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_config::active_config::KeyRulesDrainGate;
use fencegate_leases::{ConfigSwitchGuard, lease::Lease};
use fencegate_peers::plan_compat::PlanCompatRegistry;
use fencegate_policies::{
    key::ResourceKey,
    plan::{CommonServingPlan, GatewayPlan},
    plan_digest::PublishedLockRules,
};
use fencegate_zookeeper::session::{local_member::LocalMember, plan_publication::PublishedPlanBytes};
use tokio::{task::JoinHandle, time::sleep};

/// Publishes each new plan for the other gateways.
pub struct PlanPublisher {
    member: LocalMember,
    compat: Arc<PlanCompatRegistry>,
    published: Arc<Mutex<PlanPublisherState>>,
    /// The task that publishes the routes of the last plan when all requests with other locks are over.
    waiting: Option<JoinHandle<()>>,
}

struct PlanPublisherState {
    /// The plan that other gateways see.
    now: PublishedLockRules,
    /// The lock rules of the plan in force.
    latest: PublishedLockRules,
    /// The number of plans that were in force.
    plans: u64,
}

/// The interval in which it is checked whether leases of withdrawn patterns are over.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl PlanPublisher {
    /// Makes the publisher of a process that has published this plan.
    pub fn new(member: LocalMember, compat: Arc<PlanCompatRegistry>, gateway: &GatewayPlan) -> Self {
        let now = PublishedLockRules::from_plan(&gateway.serving, gateway.leases.as_ref());
        let published = PlanPublisherState { latest: now.clone(), now, plans: 1 };
        Self { member, compat, published: Arc::new(Mutex::new(published)), waiting: None }
    }

    /// Publishes `plan`, which is in force now. `left` are the key generations whose requests hold locks that the
    /// plan no longer has. Other gateways have to respect those locks until these requests are over; routes that take
    /// the same locks as before are published at once. `leases` are the leases as the plan takes them over. Other
    /// gateways have to respect each of them until its end, and no route waits for that.
    pub fn publish(
        &mut self,
        plan: &CommonServingPlan,
        leases: Option<&ConfigSwitchGuard<'_>>,
        left: Vec<Arc<KeyRulesDrainGate>>,
    ) {
        let settings = leases.map(ConfigSwitchGuard::settings);
        let next = PublishedLockRules::from_plan(
            plan,
            settings.as_ref().and_then(|settings| settings.bounds.as_ref()),
        );
        let held = leases.map(ConfigSwitchGuard::unreleased_leases).unwrap_or_default();
        // This precedes the publication of any other part of the plan: a session that switches checks which keys are
        // leased.
        self.compat.set_leases(&next, keys(&held));
        let published = self.published.clone();
        let member = self.member.clone();
        let compat = self.compat.clone();
        let number = {
            let mut published = lock(&published);
            published.latest = next.clone();
            published.plans += 1;
            let now = published.now.merge_for_switch_to(&next);
            published.set_published(now, &member);
            published.plans
        };
        let before = self.waiting.take();
        self.waiting = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // This fails only when the process ends.
                before.await.ok();
            }
            for generation in left {
                generation.wait_requests_finished().await;
            }
            {
                let mut published = lock(&published);
                // Another plan may be in force by now, and its own key generations are not over yet. So the rules are
                // merged with its rules.
                let next = next.merge_for_switch_to(&published.latest).with_leases_of(&published.now);
                published.set_published(next, &member);
            }
            // This runs in a task of its own, because the routes of the next plan do not wait for leases.
            drop(tokio::spawn(unpublish_ended_leases(published, member, compat, number, held)));
        }));
    }
}

/// Withdraws lease patterns that the plan in force does not have, as the leases in `held` end, which began under
/// earlier plans. If another plan comes into force, this returns, and the task of that plan does the rest.
async fn unpublish_ended_leases(
    published: Arc<Mutex<PlanPublisherState>>,
    member: LocalMember,
    compat: Arc<PlanCompatRegistry>,
    number: u64,
    mut held: Vec<Arc<Lease>>,
) {
    loop {
        let before = held.len();
        held.retain(|lease| lease.may_hold());
        {
            let mut published = lock(&published);
            if published.plans != number {
                return;
            }
            let keys = keys(&held);
            let next = published.now.without_leases_gone_in(&published.latest, &keys);
            published.set_published(next, &member);
            if held.len() < before {
                compat.set_leases(&published.latest, keys);
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

fn lock(published: &Mutex<PlanPublisherState>) -> MutexGuard<'_, PlanPublisherState> {
    published.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PlanPublisherState {
    fn set_published(&mut self, next: PublishedLockRules, member: &LocalMember) {
        if mem::replace(&mut self.now, next) != self.now {
            member.publish(PublishedPlanBytes::from_bytes(self.now.to_bytes()));
        }
    }
}
