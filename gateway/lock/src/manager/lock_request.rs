//! A request to the lock manager: the keys, the mode, how long to wait, and the reasons for the wait so far.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    permits::PermitCount,
    plan::{LockLocation, LockMode, LockReusePolicy},
};
use fencegate_process::clock::BootInstant;
use tokio::time::{Instant, sleep};

use super::key_capacity::KeyCapacityLimits;

/// A lock request.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// The keys of the request: sorted, without duplicates, at least one.
    pub keys: &'a [ResourceKey],
    /// The lock site of each key, in the order of the keys; empty if all are native.
    pub sites: &'a [LockLocation],
    pub mode: LockMode,
    pub hold: LockReusePolicy,
    /// The time to wait for another holder. Zero: take the lock only if it is free now.
    pub wait: Duration,
    /// The number of requests of this gateway that may wait behind the holder.
    pub queue: usize,
    /// The gateway at which the request may wait; used only for a single cached key.
    pub waits: LockWaitPlace,
    /// For keys whose upstream does not compare tokens: the time for which a request may go on after its holder is
    /// gone. If the last holder left without recording that its requests are over, the next holder waits this long. All
    /// requests for a key must have the same delay.
    pub delay: Option<Duration>,
    /// The route of the request, shown to operators.
    pub route: &'a Arc<str>,
}

impl LockRequest<'_> {
    pub(super) fn site_of_key(&self, key: usize) -> LockLocation {
        self.sites.get(key).cloned().unwrap_or_default()
    }

    /// The permit count, if the request is for a permit. Permits are never cached.
    pub(super) fn permit_count(&self) -> Option<PermitCount> {
        self.sites.iter().find_map(LockLocation::permits)
    }

    /// The numbers of requests of this gateway that may hold each key, and that may wait for it.
    pub(super) fn capacity(&self) -> KeyCapacityLimits {
        let hold = self.permit_count().map_or(1, |permits| usize::from(permits.count()));
        KeyCapacityLimits { hold, wait: self.queue }
    }

    pub(super) fn keyed_sites(&self) -> Vec<(ResourceKey, LockLocation)> {
        self.keys.iter().enumerate().map(|(at, key)| (key.clone(), self.site_of_key(at))).collect()
    }
}

/// The gateway at which a request may wait for a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockWaitPlace {
    #[default]
    Here,
    /// The request may wait here, or at the gateway that holds the key, to which it may be forwarded.
    Anywhere,
    /// The request may wait only if this gateway holds the key, because another gateway forwarded it here.
    AtHolder,
}

/// Retries a key whose holders turned out to request another permit count.
///
/// After the count was changed, the last holders with the old count may be about to leave. A request with the new count
/// leaves the queue at once, because otherwise requests with the old count would wait behind it. So it waits outside of
/// the queue and retries.
pub(super) struct PermitCountRetry {
    /// The pause before the next attempt.
    pause: Duration,
}

/// The first of three pauses; each is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_millis(200);

impl PermitCountRetry {
    pub(super) fn new(request: LockRequest<'_>) -> Self {
        // A request that does not wait for a holder does not wait for a permit count either.
        Self { pause: if request.wait.is_zero() { LAST * 2 } else { FIRST } }
    }

    /// Waits for the pause. Returns whether the key may be requested again.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub(super) async fn wait_retry(&mut self, deadline: Instant) -> bool {
        if self.pause > LAST || Instant::now() + self.pause >= deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}

/// The reasons for the wait of one request. The task of the lock node writes them, and the waiting request reads them.
#[derive(Debug, Default)]
pub struct LockWaitProgress {
    /// Whether another holder was ahead. If so, a request whose wait ends is refused as locked; otherwise it is refused
    /// because the lock service is unavailable.
    holder: AtomicBool,
    /// Nanoseconds of [`BootInstant`] at which a delay is over; 0 for none.
    delay: AtomicU64,
    /// The number of lock nodes that were ahead of the request's own node at the last check.
    nodes: AtomicUsize,
}

impl LockWaitProgress {
    /// The number of lock nodes ahead of the request's own node. Some may have gone since the last check.
    pub fn nodes_ahead(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(super) fn set_nodes_ahead(&self, nodes: usize) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    pub(super) fn set_blocked_by_holder(&self) {
        self.holder.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_delay(&self, until: BootInstant) {
        self.delay.store(until.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn has_holder_or_delay(&self) -> bool {
        self.holder.load(Ordering::Relaxed) || self.delay.load(Ordering::Relaxed) > 0
    }

    /// The rest of the handover delay; `None` if no delay was begun.
    pub(super) fn remaining_handover_delay(&self, now: BootInstant) -> Option<Duration> {
        match self.delay.load(Ordering::Relaxed) {
            0 => None,
            until => Some(BootInstant::from_nanos(until).since(now)),
        }
    }
}
