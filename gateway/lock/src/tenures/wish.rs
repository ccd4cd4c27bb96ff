//! What a request asks of the keeper: which keys, how, and for how long it would wait.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    permits::Permits,
    plan::{Hold, LockSite, Mode},
};

use super::occupancy::Capacity;

/// What a request wants.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Sorted, without doubles, at least one.
    pub keys: &'a [ResourceKey],
    /// Where the lock of each of them lies, in their order; none at all where every one is native.
    pub sites: &'a [LockSite],
    pub mode: Mode,
    pub hold: Hold,
    /// Zero: only if it is free now.
    pub wait: Duration,
    /// Requests of this gateway that may wait behind the holder.
    pub queue: usize,
    /// Where it waits: counts for a single key that is kept for others.
    pub waits: Waits,
    /// Nobody compares tokens: what this request sends may go on for so long after its holder, and after one that left
    /// without a word it waits until that is over. Only alone, and the same for everybody who asks for the key.
    pub delay: Option<Duration>,
    /// Who asks, for whoever looks.
    pub route: &'a Arc<str>,
}

impl Wish<'_> {
    pub(super) fn site(&self, key: usize) -> LockSite {
        self.sites.get(key).cloned().unwrap_or_default()
    }

    /// One of several permits of a key: never kept for others.
    pub(super) fn permits(&self) -> Option<Permits> {
        self.sites.iter().find_map(LockSite::permits)
    }

    /// Requests of this gateway that may hold each key, and wait for it.
    pub(super) fn capacity(&self) -> Capacity {
        let hold = self.permits().map_or(1, |permits| usize::from(permits.count()));
        Capacity { hold, wait: self.queue }
    }

    pub(super) fn locks(&self) -> Vec<(ResourceKey, LockSite)> {
        self.keys.iter().enumerate().map(|(at, key)| (key.clone(), self.site(at))).collect()
    }
}

/// Where a request may wait for a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Waits {
    #[default]
    Here,
    /// Here, or at the gateway that keeps the key, which it may be sent on to.
    Anywhere,
    /// Only where the key is kept: another gateway has sent it here.
    AtHolder,
}
