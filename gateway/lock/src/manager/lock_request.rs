//! A request to the lock manager: the keys, the mode, and how long to wait.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    permits::PermitCount,
    plan::{HoldPolicy, LockLocation, LockMode},
};

use super::key_capacity::KeyCapacityLimits;

/// A lock request.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// Sorted, without doubles, at least one.
    pub keys: &'a [ResourceKey],
    /// The lock site of each key, in their order; empty if all are native.
    pub sites: &'a [LockLocation],
    pub mode: LockMode,
    pub hold: HoldPolicy,
    /// How long to wait for another holder. Zero: take the lock only if it is free now.
    pub wait: Duration,
    /// Requests of this gateway that may wait behind the holder.
    pub queue: usize,
    /// Where it waits; used only for a single cached key.
    pub waits: WaitPlace,
    /// For keys whose upstream does not compare tokens: how long a request may go on after its holder is gone. If the
    /// last holder left without recording that its requests are over, the next one waits this long. All requests for a
    /// key must have the same delay.
    pub delay: Option<Duration>,
    /// The route of the request, shown to operators.
    pub route: &'a Arc<str>,
}

impl LockRequest<'_> {
    pub(super) fn site_of_key(&self, key: usize) -> LockLocation {
        self.sites.get(key).cloned().unwrap_or_default()
    }

    /// The permit count, if it requests a permit. Permits are never cached.
    pub(super) fn permit_count(&self) -> Option<PermitCount> {
        self.sites.iter().find_map(LockLocation::permits)
    }

    /// Requests of this gateway that may hold each key, and wait for it.
    pub(super) fn capacity(&self) -> KeyCapacityLimits {
        let hold = self.permit_count().map_or(1, |permits| usize::from(permits.count()));
        KeyCapacityLimits { hold, wait: self.queue }
    }

    pub(super) fn keyed_sites(&self) -> Vec<(ResourceKey, LockLocation)> {
        self.keys.iter().enumerate().map(|(at, key)| (key.clone(), self.site_of_key(at))).collect()
    }
}

/// Where a request may wait for a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitPlace {
    #[default]
    Here,
    /// Here, or at the gateway that holds the key: the request may be forwarded.
    Anywhere,
    /// Only at the holder of the key: another gateway forwarded the request here.
    AtHolder,
}
