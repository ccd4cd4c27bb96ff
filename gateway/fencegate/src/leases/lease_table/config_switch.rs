//! What leases are told while the process goes from one plan to the next.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use fencegate_policies::{key::ResourceKey, plan::LockSite};
use fencegate_process::key_redaction;

use super::{
    super::{
        command::LeaseCommand,
        lease::{Lease, site_for_permits},
    },
    LeaseSettings, LeaseTable,
};

/// Another plan is being taken over. With the end of this leases begin again, whatever ends it: a panic as well.
#[must_use]
pub struct ConfigSwitchGuard<'l>(&'l LeaseTable);

impl ConfigSwitchGuard<'_> {
    /// Those that may hold their locks: by whatever plan they were granted, it is one before.
    pub fn held_leases(&self) -> Vec<Arc<Lease>> {
        self.0.lock_index().leases.values().filter(|lease| lease.may_hold()).cloned().collect()
    }

    /// These routes have other keys by the next plan. To be called before a request begins by that.
    pub fn mark_rekeyed(&self, routes: &[String]) {
        if routes.is_empty() {
            return;
        }
        let routes: Arc<HashSet<String>> = Arc::new(routes.iter().cloned().collect());
        self.held_leases().iter().for_each(|lease| lease.mark_rekeyed(&routes));
    }

    /// What is said of leases from now on.
    pub fn settings(&self) -> Arc<LeaseSettings> {
        self.0.settings()
    }

    /// To be called before the plan of these terms is in force: whoever has that in hand finds them.
    pub fn set_settings(&self, terms: LeaseSettings) {
        // Fails where the process stops.
        self.0.tasks.send(LeaseCommand::FollowCredentials(terms.authority.clone())).ok();
        self.0.terms.store(Arc::new(terms));
    }
}

impl Drop for ConfigSwitchGuard<'_> {
    fn drop(&mut self) {
        self.0.turning.store(false, Ordering::Release);
    }
}

/// True if the plan with these sites has a lock of the lease at another place.
fn is_moved(lease: &Lease, site: impl Fn(&ResourceKey) -> Option<LockSite>) -> bool {
    let mut locks = lease.keys.iter().zip(&lease.sites);
    locks.any(|(key, held)| site(key).is_none_or(|site| site_for_permits(site, key, lease.permits) != *held))
}

impl LeaseTable {
    /// Before another plan is taken over. `site`: where that has the lock of a key; nowhere, where it delays. Nobody begins for as
    /// long as what is returned is there.
    ///
    /// # Errors
    /// The lock of a key that is leased would lie elsewhere: a lease and a request could hold it at once.
    pub fn begin_switch(
        &self,
        site: impl Fn(&ResourceKey) -> Option<LockSite>,
    ) -> Result<ConfigSwitchGuard<'_>, String> {
        self.turning.store(true, Ordering::Release);
        let turning = ConfigSwitchGuard(self);
        for lease in self.lock_index().leases.values() {
            if lease.may_hold() && is_moved(lease, &site) {
                let (keys, lease) = (key_redaction::redact_keys(&lease.keys), lease.id.reference());
                return Err(format!(
                    "lease {lease} holds or waits for {keys}, whose lock this plan has elsewhere, or delays: end it first, or wait"
                ));
            }
        }
        Ok(turning)
    }
}
