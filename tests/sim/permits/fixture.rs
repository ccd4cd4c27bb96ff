//! Gateways with one session each, over client libraries with faults. All of them request the same key.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_lock::manager::{
    grant_guard::GrantGuard,
    lock_manager::AcquireError,
    lock_request::{LockRequest, LockWaitPlace},
};
use fencegate_policies::{
    key::ResourceKey,
    permits::PermitCount,
    plan::{LockLocation, LockMode, LockReusePolicy},
};
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::session::client::MultiOp;
use tokio::task::{JoinHandle, spawn_local};

use crate::{
    faulty_client::{self, FaultInjector, FaultyClient, GatewayLockStack, SessionRequest, ZkRequestFate},
    plan::ROOT,
};

pub(super) const T: Duration = Duration::from_secs(2);

pub(super) struct PermitFixture {
    pub(super) ensemble: SimEnsemble,
    pub(super) gateways: Vec<PermitGateway>,
}

pub(super) struct PermitGateway {
    pub(super) doctor: FaultInjector,
    pub(super) locks: GatewayLockStack,
}

pub(super) fn key() -> ResourceKey {
    faulty_client::key("stock")
}

pub(super) fn semaphore(permits: u16) -> LockLocation {
    LockLocation::Semaphore { permits: PermitCount::new(permits).expect("within bounds") }
}

impl PermitFixture {
    pub(super) async fn new(count: usize) -> Self {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let mut gateways = Vec::new();
        for _ in 0..count {
            let doctor = FaultInjector::new();
            let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
            gateways.push(PermitGateway { doctor, locks: GatewayLockStack::new(library).await });
        }
        Self { ensemble, gateways }
    }

    /// Counts the requests about the key from now on. Reads of its parent are not counted, because gateways read it
    /// to look for records of dead holders.
    pub(super) fn count(&self) -> Rc<Cell<u32>> {
        let counted = Rc::<Cell<u32>>::default();
        for gateway in &self.gateways {
            let count = counted.clone();
            gateway.doctor.set_rule(move |request| {
                let record = matches!(request, SessionRequest::Data { path } if path.ends_with("/stock"));
                let about = request.path().contains("/stock") && !record;
                count.set(count.get() + u32::from(about));
                ZkRequestFate::Passes
            });
        }
        counted
    }

    /// The nodes of the key: places in the queue and permits.
    pub(super) fn nodes(&self) -> Vec<String> {
        let below = format!("{ROOT}/locks/");
        let of_a_key =
            |path: &String| path.strip_prefix(&below).is_some_and(|rest| rest.matches('/').count() == 2);
        self.ensemble.paths().into_iter().filter(of_a_key).collect()
    }

    pub(super) fn assert_nothing_left(&self) {
        assert_eq!(self.nodes(), [""; 0]);
        assert!(self.gateways.iter().all(|gateway| gateway.locks.keeper.key_count() == 0));
    }

    pub(super) async fn end(self) {
        for gateway in self.gateways {
            gateway.locks.stop().await;
        }
    }
}

/// Requests the key at this gateway, and waits for a long time.
pub(super) fn spawn_acquire(
    at: &PermitGateway,
    site: LockLocation,
) -> JoinHandle<Result<GrantGuard, AcquireError>> {
    spawn_acquire_queued(at, site, 1000)
}

/// As [`spawn_acquire`], with a limit for the number of waiting requests.
pub(super) fn spawn_acquire_queued(
    at: &PermitGateway,
    site: LockLocation,
    queue: usize,
) -> JoinHandle<Result<GrantGuard, AcquireError>> {
    let lock_manager = at.locks.keeper.clone();
    spawn_local(async move {
        let keys = [key()];
        let sites = [site];
        let route = "sim".into();
        let mode = LockMode::Exclusive;
        let hold = LockReusePolicy::Strict;
        let wait = T * 20;
        let waits = LockWaitPlace::Here;
        let delay = None;
        let request =
            LockRequest { keys: &keys, sites: &sites, mode, hold, wait, queue, waits, delay, route: &route };
        lock_manager.acquire(request).await
    })
}

pub(super) async fn expect_granted(asked: JoinHandle<Result<GrantGuard, AcquireError>>) -> GrantGuard {
    asked.await.expect("no panic").unwrap_or_else(|error| panic!("{error}"))
}

/// True for a transaction that creates the node of a permit.
pub(super) fn takes_a_permit(asked: SessionRequest<'_>) -> bool {
    let makes =
        |step: &MultiOp<'_>| matches!(step, MultiOp::Create { path, .. } if path.contains("/permit-"));
    matches!(asked, SessionRequest::Commit { steps } if steps.iter().any(makes))
}
