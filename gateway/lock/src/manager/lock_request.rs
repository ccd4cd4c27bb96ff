//! What a request asks of the keeper: which keys, how, and for how long it would wait.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    permits::Permits,
    plan::{Hold, LockSite, Mode},
};

use super::key_capacity::CapacityLimits;

/// What a request wants.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// Sorted, without doubles, at least one.
    pub keys: &'a [ResourceKey],
    /// The lock site of each key, in their order; empty if all are native.
    pub sites: &'a [LockSite],
    pub mode: Mode,
    pub hold: Hold,
    /// How long to wait for another holder. Zero: take the lock only if it is free now.
    pub wait: Duration,
    /// Requests of this gateway that may wait behind the holder.
    pub queue: usize,
    /// Where it waits; used only for a single cached key.
    pub waits: WaitPlace,
    /// For keys where nobody compares tokens: how long a request may go on after its holder is gone. If the last holder
    /// left without saying that its requests are over, the next one waits this long. All wishes for a key must have the
    /// same delay.
    pub delay: Option<Duration>,
    /// The route that asks, shown to operators.
    pub route: &'a Arc<str>,
}

impl LockRequest<'_> {
    pub(super) fn site(&self, key: usize) -> LockSite {
        self.sites.get(key).cloned().unwrap_or_default()
    }

    /// The number of permits, if it asks for one. Permits are never cached.
    pub(super) fn permits(&self) -> Option<Permits> {
        self.sites.iter().find_map(LockSite::permits)
    }

    /// Requests of this gateway that may hold each key, and wait for it.
    pub(super) fn capacity(&self) -> CapacityLimits {
        let hold = self.permits().map_or(1, |permits| usize::from(permits.count()));
        CapacityLimits { hold, wait: self.queue }
    }

    pub(super) fn keyed_sites(&self) -> Vec<(ResourceKey, LockSite)> {
        self.keys.iter().enumerate().map(|(at, key)| (key.clone(), self.site(at))).collect()
    }
}

/// Where a request may wait for a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitPlace {
    #[default]
    Here,
    /// Here, or at the gateway that keeps the key: the request may be sent on.
    Anywhere,
    /// Only where the key is kept: another gateway has sent it here.
    AtHolder,
}
