//! A lock that is held: its token, and the proof that it still is.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fencegate_policies::{permits::Permit, token::Token};
use fencegate_process::clock::{Boot, Permission, SharedClock};

use crate::tenures::tenure::{Dispatch, Tenure};

/// A lock that is held. Dropping it gives it back.
///
/// Who only drops it may have been cut short, by a panic or because its future was dropped, and something that it began
/// may go on; so nothing more is done under this lock node, and the next one has a new one. [`Held::release`] says that
/// nothing goes on, and a cached node is kept for the next one.
#[must_use = "a lock that is dropped is given back"]
pub struct Held {
    token: Token,
    evidence: Arc<dyn Permission>,
    clock: SharedClock,
    tenure: Mutex<Tenure>,
}

impl Held {
    /// `None`: it has no token.
    pub(super) fn of(tenure: Tenure, clock: &SharedClock) -> Option<Self> {
        let Dispatch { token, evidence } = tenure.dispatch()?;
        Some(Self { token, evidence, clock: clock.clone(), tenure: Mutex::new(tenure) })
    }

    /// Larger than those of all who held the key before, in all processes. Whoever stores something under it keeps
    /// the largest that came with it, and refuses smaller ones: only that stops a holder that was asleep.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Which of several permits of the key it is. Tokens grow for each permit by itself: whoever stores something keeps the largest
    /// one by the name of the permit, [`ResourceKey::of_permit`]. `None` where one at a time holds the key.
    ///
    /// [`ResourceKey::of_permit`]: fencegate_policies::key::ResourceKey::of_permit
    pub fn permit(&self) -> Option<Permit> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).permit()
    }

    /// Is it proven now that nobody else holds it? Read from memory: ask before each effect. It can be taken away between
    /// this and the effect, and then the token decides.
    pub fn holds(&self) -> bool {
        self.evidence.holds(self.clock.now())
    }

    /// For how long it is proven already. While the session is well this is more each time, but never a promise.
    pub fn proven_for(&self) -> Duration {
        let now = self.clock.now();
        if self.evidence.holds(now) { self.evidence.deadline().since(now) } else { Duration::ZERO }
    }

    /// Until when it is proven already; `None` where it does not hold any more. While the session is well it moves on.
    pub fn proven_until(&self) -> Option<Boot> {
        self.evidence.holds(self.clock.now()).then(|| self.evidence.deadline())
    }

    /// The proof itself, for whoever writes under it and has a clock.
    pub fn permission(&self) -> Arc<dyn Permission> {
        self.evidence.clone()
    }

    /// Returns when it does not hold any more, 100 ms late at most: select on it beside the work. What is lost does not
    /// come back.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (evidence, clock) = (self.evidence.clone(), self.clock.clone());
        async move { evidence.lapsed(&clock).await }
    }

    /// Gives it back, and says that nothing that was done under it goes on.
    pub fn release(self) {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).known();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("token", &self.token).finish_non_exhaustive()
    }
}
