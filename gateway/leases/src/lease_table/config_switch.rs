//! The state of leases while the process switches from one plan to the next.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use fencegate_policies::{key::ResourceKey, plan::LockLocation};
use fencegate_process::key_redaction;

use super::{
    super::{
        command::LeaseThreadCommand,
        lease::{Lease, site_for_permits},
    },
    LeaseSettings, LeaseTable,
};

/// Exists while another plan is being taken over. When it is dropped, also by a panic, leases are admitted
/// again.
#[must_use]
pub struct ConfigSwitchGuard<'l>(&'l LeaseTable);

impl ConfigSwitchGuard<'_> {
    /// The leases that may hold their locks. They were granted by an earlier plan.
    pub fn unreleased_leases(&self) -> Vec<Arc<Lease>> {
        self.0.lock_index().leases.values().filter(|lease| lease.may_hold()).cloned().collect()
    }

    /// Records that the keys of these routes differ in the next plan. Call this before a request begins under
    /// that plan.
    pub fn mark_rekeyed(&self, routes: &[String]) {
        if routes.is_empty() {
            return;
        }
        let routes: Arc<HashSet<String>> = Arc::new(routes.iter().cloned().collect());
        self.unreleased_leases().iter().for_each(|lease| lease.mark_rekeyed(&routes));
    }

    /// The settings of leases from now on.
    pub fn settings(&self) -> Arc<LeaseSettings> {
        self.0.settings()
    }

    /// Sets the settings of leases. Call this before the plan of these settings is in force, so that a reader of
    /// that plan finds them.
    pub fn set_settings(&self, settings: LeaseSettings) {
        // This fails only if the process stops.
        self.0.commands.send(LeaseThreadCommand::FollowCredentials(settings.authority.clone())).ok();
        self.0.settings.store(Arc::new(settings));
    }
}

impl Drop for ConfigSwitchGuard<'_> {
    fn drop(&mut self) {
        self.0.switching.store(false, Ordering::Release);
    }
}

/// True if a plan with these sites has a lock of the lease at another place than the lease.
fn is_lock_moved(lease: &Lease, site: impl Fn(&ResourceKey) -> Option<LockLocation>) -> bool {
    let mut locks = lease.keys.iter().zip(&lease.sites);
    locks.any(|(key, held)| site(key).is_none_or(|site| site_for_permits(site, key, lease.permits) != *held))
}

impl LeaseTable {
    /// Begins a switch to another plan. Call this before that plan is taken over. `site`: the lock of a key by
    /// that plan; `None` where the plan delays. No lease begins as long as the returned guard exists.
    ///
    /// # Errors
    /// Returns an error if the lock of a leased key would move, because a lease and a request could hold the key
    /// at once then.
    pub fn begin_switch(
        &self,
        site: impl Fn(&ResourceKey) -> Option<LockLocation>,
    ) -> Result<ConfigSwitchGuard<'_>, String> {
        self.switching.store(true, Ordering::Release);
        let switch = ConfigSwitchGuard(self);
        for lease in self.lock_index().leases.values() {
            if lease.may_hold() && is_lock_moved(lease, &site) {
                let keys = key_redaction::redact_keys(&lease.keys);
                let lease = lease.id.reference();
                return Err(format!(
                    "lease {lease} holds or waits for {keys}, whose lock this plan has elsewhere, or delays: end it first, or wait"
                ));
            }
        }
        Ok(switch)
    }
}
