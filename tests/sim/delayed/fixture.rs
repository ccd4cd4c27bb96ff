//! Gateways whose holders write records into ZooKeeper. Tests decide which of these writes are lost.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_lock::manager::grant_guard::GrantGuard;
use fencegate_policies::plan::{CachedHoldLimits, LockReusePolicy};
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::session::client::MultiOp;
use tokio::time::Instant;

use crate::{
    faulty_client::{self, FaultInjector, FaultyClient, GatewayLockStack, SessionRequest, ZkRequestFate},
    plan::ROOT,
};

pub(super) const T: Duration = Duration::from_secs(2);
pub(super) const DELAY: Duration = Duration::from_secs(30);
/// Longer than any step of these tests that waits for no delay.
pub(super) const SOON: Duration = Duration::from_secs(1);
pub(super) const FOR_EVER: Duration = Duration::from_secs(1000);

pub(super) const HOLDS: [LockReusePolicy; 2] = [LockReusePolicy::Strict, LockReusePolicy::Cached(CACHED)];
pub(super) const CACHED: CachedHoldLimits = CachedHoldLimits {
    linger: Duration::from_millis(250),
    max_local: 64,
    max_hold: Duration::from_millis(100),
    max_tenure: Duration::from_secs(600),
};

pub(super) fn ensemble() -> SimEnsemble {
    SimEnsemble::start(EnsembleSettings::default())
}

pub(super) async fn gateway(ensemble: &SimEnsemble) -> (FaultInjector, GatewayLockStack) {
    let doctor = FaultInjector::new();
    let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
    let locks = GatewayLockStack::new(library).await;
    (doctor, locks)
}

pub(super) async fn take(locks: &GatewayLockStack, hold: LockReusePolicy) -> GrantGuard {
    locks.acquire_delayed(&["a"], hold, FOR_EVER, Some(DELAY)).await.expect("granted in the end")
}

/// Sends a dispatch under a tenure, and releases it. `known`: whether the outcome is known.
pub(super) fn send(tenure: GrantGuard, known: bool) {
    tenure.next_dispatch().expect("it holds");
    if known {
        tenure.mark_upstream_settled();
    }
}

pub(super) async fn timed_take(locks: &GatewayLockStack, hold: LockReusePolicy) -> (Duration, GrantGuard) {
    let began = Instant::now();
    let tenure = take(locks, hold).await;
    (began.elapsed(), tenure)
}

/// The parents of lock nodes, of all keys.
pub(super) fn parents(ensemble: &SimEnsemble) -> Vec<String> {
    let mut paths = ensemble.paths();
    paths.retain(|path| is_parent(path));
    paths
}

pub(super) fn is_parent(path: &str) -> bool {
    path.strip_prefix(ROOT).is_some_and(|rest| rest.starts_with("/locks/") && rest.matches('/').count() == 3)
}

pub(super) fn parent() -> String {
    faulty_client::parent("a")
}

/// True for the transaction in which a holder records that it holds the key.
pub(super) fn is_first_word(steps: &[MultiOp<'_>]) -> bool {
    steps.iter().any(|step| matches!(step, MultiOp::Set { path, .. } if is_parent(path)))
        && !steps.iter().any(|step| matches!(step, MultiOp::Delete { .. }))
}

/// True for the transaction in which a holder records that it releases the key in order.
pub(super) fn is_last_word(steps: &[MultiOp<'_>]) -> bool {
    let leaves = steps.iter().any(|step| matches!(step, MultiOp::Delete { .. }));
    let parent = |step: &MultiOp<'_>| match step {
        MultiOp::Set { path, .. } | MultiOp::Delete { path, .. } => is_parent(path),
        MultiOp::Check { .. } | MultiOp::Create { .. } => false,
    };
    leaves && steps.iter().any(parent)
}

pub(super) fn inject_once(
    doctor: &FaultInjector,
    when: fn(&[MultiOp<'_>]) -> bool,
    fate: ZkRequestFate,
) -> Rc<Cell<bool>> {
    let done = Rc::new(Cell::new(false));
    let told = done.clone();
    doctor.set_rule(move |request| match request {
        SessionRequest::Commit { steps } if when(steps) && !told.replace(true) => fate.clone(),
        _ => ZkRequestFate::Passes,
    });
    done
}
