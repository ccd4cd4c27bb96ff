//! A lease's lock that no session has granted, for tests of this crate and of the crates above it.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{
    key::KeyTemplate,
    plan::{LockMode, LockReusePolicy},
};
use fencegate_process::clock::{BootInstant, ManualClock};
use fencegate_recipe::grant::LockGrant;
use fencegate_zookeeper::session::{lock_validity::LockValidity, session_deadline::SessionDeadline};
use tokio::sync::oneshot;

use super::LeasedLock;
use crate::manager::{
    key_capacity::HolderKind,
    lock_request::{LockRequest, LockWaitPlace},
    uncached_lock,
    uncached_registry::{LockWaitInfo, UncachedLockRegistry},
};

/// A lock that is held until [`LeasedLockFixture::proof`] ends, 2^50 nanoseconds after the start of the clock.
pub struct LeasedLockFixture {
    pub lease: LeasedLock,
    /// Receives whether all outcomes are known, when the lock is released and no request runs under it.
    pub over: oneshot::Receiver<bool>,
    pub proof: Arc<SessionDeadline>,
    pub clock: Arc<ManualClock>,
}

/// The lock of the key `job`, held in this mode with epoch 7.
pub fn leased_lock(mode: LockMode) -> LeasedLockFixture {
    let registry = Arc::<UncachedLockRegistry>::default();
    let keys = [KeyTemplate::parse("job").expect("a literal").expand(&()).expect("short")];
    let name = "lease".into();
    let request = LockRequest {
        keys: &keys,
        sites: &[],
        mode,
        hold: LockReusePolicy::Strict,
        wait: Duration::ZERO,
        queue: 1,
        waits: LockWaitPlace::Here,
        delay: None,
        route: &name,
    };
    let enrolled =
        registry.register(request, LockWaitInfo { asked: BootInstant::from_nanos(0), ahead: Arc::default() });
    let proof = Arc::new(SessionDeadline::new(1, BootInstant::from_nanos(1 << 50)));
    let validity = Arc::new(LockValidity::new(proof.clone()));
    let grant =
        LockGrant { epoch: 7, sequence: 0, permit: None, validity, nodes: [].into(), contended: false };
    enrolled.set_granted(&grant, BootInstant::from_nanos(0));
    let (sender, over) = oneshot::channel();
    let clock = Arc::<ManualClock>::default();
    let (lock, held) =
        uncached_lock::create_uncached_lock(grant, mode, HolderKind::Client, sender, enrolled, clock.clone());
    LeasedLockFixture { lease: LeasedLock::new(lock, held), over, proof, clock }
}
