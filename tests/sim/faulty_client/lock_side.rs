//! The lock side of a gateway over a faulty client library, and the requests to it.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_lock::manager::{
    grant_guard::GrantGuard,
    lock_manager::{AcquireError, LockManager, create_lock_manager},
    lock_request::{LockRequest, LockWaitPlace},
};
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::{
    key::{KeyTemplate, ResourceKey},
    plan::{LockLocation, LockMode, LockReusePolicy},
};
use fencegate_process::clock::{BootInstant, Clock, SharedClock};
use fencegate_tests::memory::SeededRng;
use fencegate_zookeeper::{
    session::{local_member::LocalMember, settings::SessionSettings},
    state::HighestEpochTracker,
};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::client::FaultyClient;
use crate::plan::{ROOT, plan};

#[derive(Debug)]
struct SimulatedClock(Instant);

impl Clock for SimulatedClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_secs(1000) + self.0.elapsed()
    }
}

pub(crate) fn clock() -> SharedClock {
    Arc::new(SimulatedClock(Instant::now()))
}

const SEED: u64 = 7;

pub(crate) fn settings(clock: SharedClock, session_timeout: Duration) -> SessionSettings {
    let plan = plan("gw", ([127, 0, 0, 1], 1).into(), session_timeout);
    SessionSettings {
        policy: plan.zookeeper.clone(),
        gateway: "gw".to_owned(),
        member: LocalMember::new(plan.fingerprint),
        init: true,
        log_dedup: Arc::default(),
        sequence_limit: fencegate_zookeeper::limits::SEQUENCE_LIMIT,
        token_history: Arc::<HighestEpochTracker>::default(),
        clock,
        randomness: Arc::new(SeededRng::new(SEED)),
        metrics: AllMetricFamilies::for_gateway(&plan).session(0),
    }
}

/// The lock manager of a gateway with one session, over the faulty library.
pub(crate) struct GatewayLockStack {
    pub(crate) keeper: LockManager,
    pub(crate) clock: SharedClock,
    stop: CancellationToken,
    desk: JoinHandle<()>,
    timeout: Duration,
}

impl GatewayLockStack {
    /// Starts the lock manager. Returns when it has a session.
    pub(crate) async fn new(library: FaultyClient) -> Self {
        Self::with_sequence_limit(library, fencegate_zookeeper::limits::SEQUENCE_LIMIT).await
    }

    /// As [`Self::new`], with lock nodes that never hold if their number is above `sequence_limit`.
    pub(crate) async fn with_sequence_limit(library: FaultyClient, sequence_limit: u32) -> Self {
        let clock = clock();
        let timeout = library.timeout;
        let stop = CancellationToken::new();
        let (keeper, desks) = create_lock_manager(clock.clone(), 1);
        let desk = desks.into_iter().next().expect("one session");
        // Each gateway needs its own seed, so that two gateways draw different names for their attempts.
        let seed = SEED + library.ensemble.sessions().len() as u64;
        let randomness = Arc::new(SeededRng::new(seed));
        let settings =
            Rc::new(SessionSettings { randomness, sequence_limit, ..settings(clock.clone(), timeout) });
        let desk = spawn_local(desk.run(library, settings, stop.clone()));
        while !keeper.is_ready() {
            sleep(timeout / 10).await;
        }
        Self { keeper, clock, stop, desk, timeout }
    }

    pub(crate) async fn acquire(
        &self,
        names: &[&str],
        hold: LockReusePolicy,
    ) -> Result<GrantGuard, AcquireError> {
        self.acquire_at(names, &[], hold).await
    }

    /// Takes the locks of keys. `sites`: the location of each lock; empty if all locks are native.
    pub(crate) async fn acquire_at(
        &self,
        names: &[&str],
        sites: &[LockLocation],
        hold: LockReusePolicy,
    ) -> Result<GrantGuard, AcquireError> {
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        // A strict request gets no queue: otherwise a request of an earlier step that has not quite ended could
        // refuse it.
        let queue = if hold == LockReusePolicy::Strict { 0 } else { 100 };
        let keys = &keys;
        let mode = LockMode::Exclusive;
        let wait = self.timeout * 10;
        let waits = LockWaitPlace::Here;
        let delay = None;
        let route = &"sim".into();
        self.keeper.acquire(LockRequest { keys, sites, mode, hold, wait, queue, waits, delay, route }).await
    }

    /// Takes the locks of keys for a service that compares no tokens, where a dispatch may go on for `delay`.
    pub(crate) async fn acquire_delayed(
        &self,
        names: &[&str],
        hold: LockReusePolicy,
        wait: Duration,
        delay: Option<Duration>,
    ) -> Result<GrantGuard, AcquireError> {
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        let keys = &keys;
        let sites = &[];
        let mode = LockMode::Exclusive;
        let waits = LockWaitPlace::Here;
        let route = &"sim".into();
        self.keeper
            .acquire(LockRequest { keys, sites, mode, hold, wait, queue: 100, waits, delay, route })
            .await
    }

    /// Stops the lock manager. Returns when all of its tasks have ended.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(self.timeout * 10, self.desk).await.expect("it ends").expect("no panic");
    }
}

pub(crate) fn key(name: &str) -> ResourceKey {
    KeyTemplate::parse(name).expect("a literal").expand(&()).expect("short")
}

/// The parent of the lock nodes of the key with this name.
pub(crate) fn parent(name: &str) -> String {
    let key = key(name);
    format!("{ROOT}/locks/{:02x}/{}", key.lock_shard(), key.lock_segment())
}
