//! Answers queries about the plan in force: where the lock node of a key is, and whether all services of a key
//! compare tokens.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use fencegate_policies::{
    key::{KeyTemplate, ResourceKey},
    plan::{Enforcement, FenceRule, GatewayPlan, LockLocation},
};

use crate::active_config::ActiveConfig;

/// The plan in force. Clones share it.
#[derive(Debug, Clone)]
pub struct CurrentConfig {
    current: Arc<ArcSwap<ConfigSnapshot>>,
    history: Arc<Mutex<KeyTemplateHistory>>,
}

/// A plan, and its configuration once the process serves it.
#[derive(Debug)]
struct ConfigSnapshot {
    plan: Arc<GatewayPlan>,
    /// Counts the requests of this plan, and those of earlier plans that still run. `None` before the process serves
    /// anything.
    active: Option<Arc<ActiveConfig>>,
}

/// The keys of all plans that were in force since the process began. A request runs to its end under the plan with
/// which it arrived, so a key that a later plan has changed may still be in use.
#[derive(Debug, Default)]
struct KeyTemplateHistory {
    /// Keys of routes whose tokens are not compared.
    uncompared: HashMap<String, KeyTemplate>,
    /// Keys of routes whose tokens are compared.
    compared: HashMap<String, KeyTemplate>,
}

impl CurrentConfig {
    pub fn new(gateway: GatewayPlan) -> Self {
        let past = Arc::default();
        let snapshot = ConfigSnapshot { plan: Arc::new(gateway), active: None };
        let in_force = Self { current: Arc::new(ArcSwap::from_pointee(snapshot)), history: past };
        in_force.record_key_templates(&in_force.plan());
        in_force
    }

    /// Adds the keys of a plan. Must be called before the first request arrives under the plan.
    pub fn record_key_templates(&self, gateway: &GatewayPlan) {
        let mut past = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        for route in gateway.serving.routes.routes() {
            let Some(fence) = &route.fence else { continue };
            let level = gateway.serving.upstream(route.upstream).fencing;
            let compared = level.compares_tokens() && fence.enforce == Enforcement::Refuse;
            let known = if compared { &mut past.compared } else { &mut past.uncompared };
            for key in fence.templates() {
                known.entry(key.to_string()).or_insert_with(|| key.clone());
            }
        }
    }

    pub fn replace(&self, gateway: GatewayPlan, config: Arc<ActiveConfig>) {
        self.current.store(Arc::new(ConfigSnapshot { plan: Arc::new(gateway), active: Some(config) }));
    }

    pub fn plan(&self) -> Arc<GatewayPlan> {
        self.current.load().plan.clone()
    }

    /// The plan in force with its configuration. `None` while the process starts, before it serves anything.
    pub fn active_config(&self) -> Option<(Arc<GatewayPlan>, Arc<ActiveConfig>)> {
        let snapshot = self.current.load();
        Some((snapshot.plan.clone(), snapshot.active.clone()?))
    }

    /// Returns when no request of an earlier plan runs any more that locks one of these keys in another way than
    /// `plan`, or not at all. Returns false if `plan` is not in force any more.
    pub async fn wait_older_key_rules_drained(&self, plan: &Arc<GatewayPlan>, keys: &[ResourceKey]) -> bool {
        let snapshot = self.current.load_full();
        if !Arc::ptr_eq(&snapshot.plan, plan) {
            return false;
        }
        let Some(config) = &snapshot.active else { return true };
        let gives = |fence: &FenceRule| {
            keys.iter().any(|key| fence.templates().any(|template| template.may_produce(key)))
        };
        for route in plan.serving.routes.routes() {
            if route.fence.as_ref().is_some_and(gives) {
                config.wait_generation_open(route.upstream).await;
            }
        }
        true
    }

    /// The place of the lock of `key` in ZooKeeper, by the plan in force.
    pub fn site(&self, key: &ResourceKey) -> LockLocation {
        site_in_plan(&self.current.load().plan, key)
    }

    /// True if tokens are compared by every service to which requests under this key go or went, from any gateway
    /// with the plans of this process. The plan in force alone does not decide this: a request of an earlier plan
    /// may still run.
    pub fn all_services_compare_tokens(&self, key: &ResourceKey) -> bool {
        let past = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let may_be =
            |keys: &HashMap<String, KeyTemplate>| keys.values().any(|template| template.may_produce(key));
        may_be(&past.compared) && !may_be(&past.uncompared)
    }
}

/// The place of the lock of `key` in ZooKeeper, by this plan.
pub fn site_in_plan(gateway: &GatewayPlan, key: &ResourceKey) -> LockLocation {
    let fences = gateway.serving.routes.routes().iter().filter_map(|route| route.fence.as_ref());
    let sites = fences.filter_map(|fence| fence.site_of(key));
    sites.into_iter().find(|site| *site != LockLocation::Native).unwrap_or_default()
}

/// True if a route produces this key and releases its locks after a delay.
pub fn plan_delays_key_release(gateway: &GatewayPlan, key: &ResourceKey) -> bool {
    gateway.serving.routes.routes().iter().any(|route| {
        let delayed = gateway.serving.upstream(route.upstream).fencing.handover_delay().is_some();
        let may_give = |fence: &FenceRule| fence.templates().any(|template| template.may_produce(key));
        delayed && route.fence.as_ref().is_some_and(may_give)
    })
}
