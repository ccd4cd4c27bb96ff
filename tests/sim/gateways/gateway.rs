//! The lock manager of a gateway, on the ensemble in memory. Only this file of these tests uses
//! `fencegate_lock::manager`.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

pub(super) use fencegate_lock::manager::{
    grant_guard::GrantGuard, lock_manager::AcquireError, lock_request::LockWaitPlace,
};
use fencegate_lock::manager::{
    lock_manager::{LockManager, create_lock_manager},
    lock_request::LockRequest,
};
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::{
    key::{KeyTemplate, ResourceKey},
    permits::PermitCount,
    plan::{CachedHoldLimits, ForeignLockLayout, LockLocation, LockReusePolicy},
};
pub(super) use fencegate_policies::{plan::LockMode, token::FencingToken};
use fencegate_process::clock::{self, BootInstant, Clock, SharedClock};
use fencegate_tests::memory::{SeededRng, SimEnsemble, Wire};
pub(super) use fencegate_zookeeper::peer_endpoint::HolderRoute;
use fencegate_zookeeper::{
    peer_endpoint::PeerEndpoint,
    peer_secret::PeerSecret,
    session::{local_member::LocalMember, settings::SessionSettings},
};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::plan::{ROOT, plan};

/// Session timeout of every gateway.
pub(super) const T: Duration = Duration::from_secs(2);

pub(super) struct SimGateway {
    door: WorkerHandle,
    pass: PeerSecret,
    stop: CancellationToken,
    desks: RefCell<Vec<JoinHandle<()>>>,
}

/// The part of a gateway that its workers use.
#[derive(Clone)]
pub(super) struct WorkerHandle {
    keeper: LockManager,
    clock: SharedClock,
}

/// The lock that one request asks for.
#[derive(Debug, Clone)]
pub(super) struct SimRequest {
    pub(super) keys: Vec<ResourceKey>,
    pub(super) mode: LockMode,
    pub(super) keeping: HoldMode,
    pub(super) wait: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldMode {
    Strict,
    Cached,
    /// Like `Cached`, but a request that would wait for another gateway is forwarded to it.
    SentOn,
    /// The lock is one node that gateways and programs share.
    OneNode,
    /// A key with this number of permits.
    Permits(u16),
}

/// Tells whether a dispatch may be sent at this moment.
#[derive(Debug, Clone)]
pub(super) struct DispatchPermission {
    evidence: Arc<dyn clock::SendPermission>,
    clock: SharedClock,
}

/// The settings of all gateways of one simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatewaySettings {
    pub(super) clocks: ClockSpeed,
    /// The number of sessions of each gateway.
    pub(super) sessions: usize,
}

/// The speed of a gateway's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockSpeed {
    Right,
    /// Half the right speed, so that a lock seems valid long after its end. No gateway can protect itself from this,
    /// so the judge must find violations.
    Slow,
}

#[derive(Debug)]
struct SimulatedClock {
    /// The uptime of the machine at the beginning of the simulation.
    uptime: Duration,
    began: Instant,
    pace: ClockSpeed,
}

impl Clock for SimulatedClock {
    fn now(&self) -> BootInstant {
        let elapsed = match self.pace {
            ClockSpeed::Right => self.began.elapsed(),
            ClockSpeed::Slow => self.began.elapsed() / 2,
        };
        BootInstant::from_nanos(0) + self.uptime + elapsed
    }
}

impl SimGateway {
    /// Takes a lock. Tries again while the gateway has no session yet.
    pub(super) async fn acquire_granted(&self, want: &SimRequest) -> GrantGuard {
        loop {
            match self.worker_handle().acquire(want, LockWaitPlace::Here).await {
                Ok(tenure) => return tenure,
                Err(AcquireError::Service(_)) => sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(super) fn start(
        ensemble: &SimEnsemble,
        wire: &Rc<Wire>,
        scale: GatewaySettings,
        dice: &SeededRng,
    ) -> Self {
        let plan = plan("gw", ([127, 0, 0, 1], 1).into(), T);
        let metrics = AllMetricFamilies::for_gateway(&plan);
        let uptime = dice.within(&(Duration::from_secs(100)..Duration::from_secs(100_000)));
        let clock: SharedClock =
            Arc::new(SimulatedClock { uptime, began: Instant::now(), pace: scale.clocks });
        let (keeper, desks) = create_lock_manager(clock.clone(), scale.sessions);
        let stop = CancellationToken::new();
        let memory = Arc::default();
        let pass = PeerSecret::new(&SeededRng::new(dice.next()));
        let reach = PeerEndpoint { address: "gw:1".to_owned(), pass: pass.clone() };
        let member = LocalMember::with_endpoint(plan.fingerprint, Some(reach));
        let run = |(number, desk): (usize, fencegate_lock::manager::session_worker::SessionWorker)| {
            let settings = SessionSettings {
                policy: plan.zookeeper.clone(),
                gateway: "gw".to_owned(),
                member: member.clone(),
                init: true,
                log_dedup: Arc::default(),
                sequence_limit: fencegate_zookeeper::limits::SEQUENCE_LIMIT,
                token_history: Arc::clone(&memory),
                clock: clock.clone(),
                randomness: Arc::new(SeededRng::new(dice.next())),
                metrics: metrics.session(number),
            };
            spawn_local(desk.run(ensemble.client(wire, T), Rc::new(settings), stop.clone()))
        };
        let desks = RefCell::new(desks.into_iter().enumerate().map(run).collect());
        Self { door: WorkerHandle { keeper, clock: clock.clone() }, pass, stop, desks }
    }

    pub(super) fn worker_handle(&self) -> WorkerHandle {
        self.door.clone()
    }

    /// True if the route leads to this process.
    pub(super) fn is_target_of(&self, way: &HolderRoute) -> bool {
        self.pass == way.secret
    }

    /// The number of keys that the gateway remembers.
    pub(super) fn key_count(&self) -> usize {
        self.door.keeper.key_count()
    }

    /// Stops the gateway as SIGTERM does. Returns whether it has ended in time.
    pub(super) async fn stop(&self) -> bool {
        self.stop.cancel();
        let desks = self.desks.take();
        let ended = async {
            for worker in desks {
                worker.await.expect("no panic");
            }
        };
        timeout(Duration::from_secs(10), ended).await.is_ok()
    }
}

impl WorkerHandle {
    /// Takes a lock as a request does: at once if possible, otherwise after waiting in the queue.
    pub(super) async fn acquire(
        &self,
        want: &SimRequest,
        waits: LockWaitPlace,
    ) -> Result<GrantGuard, AcquireError> {
        let hold = match want.keeping {
            HoldMode::Strict | HoldMode::OneNode | HoldMode::Permits(_) => LockReusePolicy::Strict,
            HoldMode::Cached | HoldMode::SentOn => LockReusePolicy::Cached(CachedHoldLimits::default()),
        };
        let keys = &want.keys;
        let mode = want.mode;
        let wait = want.wait;
        let route = &"simulated".into();
        let node = LockLocation::Foreign { layout: ForeignLockLayout::ExclusiveNode, path: NODE.into() };
        let sites = match want.keeping {
            HoldMode::OneNode => vec![node],
            HoldMode::Permits(permits) => {
                let permits = PermitCount::new(permits).expect("within bounds");
                vec![LockLocation::Semaphore { permits }]
            }
            HoldMode::Strict | HoldMode::Cached | HoldMode::SentOn => Vec::new(),
        };
        let sites = &*sites;
        let request = LockRequest { keys, sites, mode, hold, wait, queue: QUEUE, waits, delay: None, route };
        match self.keeper.try_acquire(request) {
            Some(tenure) => Ok(tenure),
            None => self.keeper.acquire(request).await,
        }
    }

    /// Forgets that the gateway with this route holds the key.
    pub(super) fn forget(&self, key: &ResourceKey, way: &HolderRoute) {
        self.keeper.forget_holder(key, way);
    }

    /// Returns the token and the permission of the next dispatch under a tenure; `None` if the tenure is closed.
    pub(super) fn dispatch(&self, tenure: &GrantGuard) -> Option<(FencingToken, DispatchPermission)> {
        let dispatch = tenure.next_dispatch()?;
        Some((dispatch.token, DispatchPermission { evidence: dispatch.validity, clock: self.clock.clone() }))
    }
}

/// The lock validity of a foreign program, which never loses its lock while it works.
#[derive(Debug)]
struct AlwaysValidLock;

impl clock::SendPermission for AlwaysValidLock {
    fn may_send_at(&self, _: BootInstant) -> bool {
        true
    }

    fn valid_until(&self) -> BootInstant {
        BootInstant::from_nanos(u64::MAX)
    }
}

impl DispatchPermission {
    pub(super) fn for_program() -> Self {
        let began = Instant::now();
        let clock = Arc::new(SimulatedClock { uptime: Duration::ZERO, began, pace: ClockSpeed::Right });
        Self { evidence: Arc::new(AlwaysValidLock), clock }
    }

    pub(super) fn holds(&self) -> bool {
        self.evidence.may_send_at(self.clock.now())
    }
}

/// The number of requests that may wait for one key at one gateway.
const QUEUE: usize = 100;

/// The minimum time that the server gets to answer, even if the request's own wait is shorter.
pub(super) const LEAST_WAIT: Duration = Duration::from_secs(1);

pub(super) fn key(name: &str) -> ResourceKey {
    KeyTemplate::parse(name).expect("a literal").expand(&()).expect("short")
}

/// The node that gateways and programs share.
pub(super) const NODE: &str = "/app/d";

/// True for the path of a lock node.
pub(super) fn is_lock(path: &str) -> bool {
    path == NODE
        || path
            .strip_prefix(ROOT)
            .is_some_and(|rest| rest.starts_with("/locks/") && rest.matches('/').count() == 4)
}
