//! A granted lock: its token, and the time until which the lock is valid.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fencegate_policies::{permits::PermitIndex, token::FencingToken};
use fencegate_process::clock::{BootInstant, SendPermission, SharedClock};

use crate::manager::grant_guard::{GrantGuard, UpstreamDispatch};

/// A granted lock. Dropping it releases it.
///
/// A drop may come from a panic or from a dropped future, while work under the lock still goes on. So a lock node is
/// never used again after a mere drop: the next holder gets a new node. [`LockGuard::release`] reports that all work is
/// over, and a cached node is then kept for the next holder.
#[must_use = "a lock that is dropped is given back"]
pub struct LockGuard {
    token: FencingToken,
    validity: Arc<dyn SendPermission>,
    clock: SharedClock,
    tenure: Mutex<GrantGuard>,
}

impl LockGuard {
    /// Takes the token of the first dispatch. `None`: the tenure has no token.
    pub(super) fn new(tenure: GrantGuard, clock: &SharedClock) -> Option<Self> {
        let UpstreamDispatch { token, validity } = tenure.next_dispatch()?;
        Some(Self { token, validity, clock: clock.clone(), tenure: Mutex::new(tenure) })
    }

    /// The fencing token: larger than the tokens of all earlier holders of the key, in all processes. The store that is
    /// written to has to keep the largest token and refuse smaller ones. Only that stops a holder that was suspended.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The permit of this holder; `None` if the key has one holder at a time. Tokens grow for each permit by itself, so
    /// the store has to keep the largest token per permit, under the name [`ResourceKey::for_permit`].
    ///
    /// [`ResourceKey::for_permit`]: fencegate_policies::key::ResourceKey::for_permit
    pub fn permit(&self) -> Option<PermitIndex> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).permit()
    }

    /// Whether the lock is valid now, so that no other process holds the key. The answer comes from memory and costs
    /// nothing, so check before each effect. The lock may be lost between the check and the effect; then the receiver
    /// has to compare tokens.
    pub fn is_held(&self) -> bool {
        self.validity.may_send_at(self.clock.now())
    }

    /// The time for which the lock is still valid, as known now. A healthy session extends its deadline again and
    /// again, but may fail at any time.
    pub fn remaining_validity(&self) -> Duration {
        let now = self.clock.now();
        if self.validity.may_send_at(now) { self.validity.valid_until().since(now) } else { Duration::ZERO }
    }

    /// The end of validity, as known now; `None` after the lock was lost. A healthy session moves this time on.
    pub fn valid_until(&self) -> Option<BootInstant> {
        self.validity.may_send_at(self.clock.now()).then(|| self.validity.valid_until())
    }

    /// The permission to write under the lock, for writers that check it with a clock of their own.
    pub fn permission(&self) -> Arc<dyn SendPermission> {
        self.validity.clone()
    }

    /// Returns when the lock is lost, 100 ms late at most: select on it beside the work. A lost lock never comes back.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn wait_lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let validity = self.validity.clone();
        let clock = self.clock.clone();
        async move { validity.wait_expired(&clock).await }
    }

    /// Releases the lock, and reports that no work under it goes on.
    pub fn release(self) {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).mark_upstream_settled();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("token", &self.token).finish_non_exhaustive()
    }
}
