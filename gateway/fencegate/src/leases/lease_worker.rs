//! Takes the locks of leases and asks other gateways about theirs, apart from all workers: a lease outlives the request that
//! asked for it, and the worker that had that.

use std::{io, rc::Rc, sync::Arc, thread, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::{
    manager::{
        lock_manager::{AcquireError, LockManager},
        lock_request::{LockRequest, WaitPlace},
    },
    session::paths::Paths,
};
use fencegate_policies::plan::Hold;
use fencegate_process::{clock::SharedClock, failpoint};
use futures_util::future::BoxFuture;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, LocalSet, spawn_local},
};
use tokio_util::sync::CancellationToken;

use super::{
    command::LeaseCommand,
    lease::{EndReason, Lease},
    lease_table::{LeaseSettings, LeaseTable, LeaseTableDeps},
    peer_client::PeerClient,
};
use crate::{
    current_config::CurrentConfig, metrics::LeaseMetrics, peers::LocalPeer, plan_compat::PlanCompat,
    refusal::Refusal,
};

/// The parts that the leases of a process need.
pub struct LeaseWorkerDeps<N> {
    pub name: Arc<str>,
    pub keeper: LockManager,
    pub clock: SharedClock,
    pub metrics: LeaseMetrics,
    pub in_force: CurrentConfig,
    /// Whether other gateways take the same locks as this one.
    pub agreement: Arc<PlanCompat>,
    pub drain: CancellationToken,
    pub network: N,
    /// Run for as long as the thread turns: it tells so whoever asks.
    pub turning: BoxFuture<'static, ()>,
    /// What this process is to other gateways, where they reach it.
    pub ours: Option<LocalPeer>,
}

/// The name of requests for leases among the waiters for locks.
const NAME: &str = "(lease)";

/// Takes the locks, once somebody runs it.
pub struct LeaseWorker<N> {
    leases: Arc<LeaseTable>,
    network: N,
    clock: SharedClock,
    ours: Option<LocalPeer>,
    turning: BoxFuture<'static, ()>,
    given: mpsc::UnboundedReceiver<LeaseCommand>,
}

impl<N: Network> LeaseWorker<N> {
    pub fn new(equipment: LeaseWorkerDeps<N>, terms: LeaseSettings) -> (Arc<LeaseTable>, Self) {
        let LeaseWorkerDeps {
            name,
            keeper,
            clock,
            metrics,
            in_force,
            agreement,
            drain,
            network,
            turning,
            ours,
        } = equipment;
        let (tasks, given) = mpsc::unbounded_channel();
        let parts = LeaseTableDeps {
            gateway: name,
            keeper,
            clock: clock.clone(),
            tasks,
            drain,
            metrics,
            in_force,
            agreement,
        };
        let leases = Arc::new(LeaseTable::new(parts, terms));
        let taker = Self { leases: leases.clone(), network, clock, ours, turning, given };
        (leases, taker)
    }

    /// On a thread of its own, which ends with the process.
    ///
    /// # Errors
    /// The machine has no thread.
    pub fn start(self) -> io::Result<()>
    where
        N: Send,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("leases".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, self.run());
        })?;
        Ok(())
    }

    /// Returns when nobody gives it anything any more. Call it inside a `LocalSet`.
    pub async fn run(self) {
        let Self { leases, network, clock, ours, turning, mut given } = self;
        drop(spawn_local(turning));
        let remotes =
            Rc::new(PeerClient { network, clock, ours, keeper: leases.keeper.clone(), idle: Rc::default() });
        let (swept, tended) = (leases.clone(), remotes.idle.clone());
        drop(spawn_local(async move { swept.sweep().await }));
        drop(spawn_local(async move { tended.evict_idle().await }));
        let mut following: Option<JoinHandle<()>> = None;
        while let Some(task) = given.recv().await {
            match task {
                LeaseCommand::Acquire { lease, wait } => {
                    drop(spawn_local(acquire(leases.clone(), lease, wait)))
                }
                LeaseCommand::FollowCredentials(authority) => {
                    let next = spawn_local(async move { authority.follow().await });
                    if let Some(before) = following.replace(next) {
                        before.abort();
                    }
                }
                LeaseCommand::AskPeer { member, question, told } => {
                    let remotes = remotes.clone();
                    drop(spawn_local(async move { remotes.run((member, question), told).await }));
                }
            }
        }
    }
}

/// Returns when the lease has its lock or is over.
async fn acquire(leases: Arc<LeaseTable>, lease: Arc<Lease>, wait: Duration) {
    failpoint::pass("before_lease_taken");
    let name = NAME.into();
    let wish = LockRequest {
        keys: &lease.keys,
        sites: &lease.sites,
        mode: lease.mode,
        hold: Hold::Strict,
        wait,
        queue: usize::MAX,
        waits: WaitPlace::Here,
        delay: None,
        route: &name,
    };
    let granted = tokio::select! {
        granted = leases.keeper.lease(wish, lease.ahead.clone()) => granted,
        // What is granted at this moment is given back with the future.
        () = lease.wait_decided() => return,
    };
    match granted {
        Ok(lock) => match check_grantable(&leases, &lease, lock.session()).await {
            Ok(()) => lease.on_granted(lock),
            Err(why) => {
                lock.release();
                leases.end(&lease, why);
            }
        },
        Err(AcquireError::Locked | AcquireError::Delayed(_) | AcquireError::QueueFull) => {
            leases.end(&lease, EndReason::GaveUp)
        }
        Err(refused) => leases
            .end(&lease, EndReason::Refused(Box::new(Refusal::from_lock_error(&refused, LOCKED_STATUS)))),
    }
}

/// Its lock is held by this session, and the lease may have waited for it for a day: what was asked before is asked again.
async fn check_grantable(leases: &LeaseTable, lease: &Lease, session: i64) -> Result<(), EndReason> {
    // Its id says which session holds it: whoever asks for it elsewhere is sent there.
    if Paths::member_name(&leases.gateway, session) != lease.id.member() {
        return Err(EndReason::Lost);
    }
    let refused = |refusal| EndReason::Refused(Box::new(refusal));
    match leases.check_plan_compat(&leases.in_force.plan(), &lease.keys).await {
        Ok(agreed) if agreed == session => Ok(()),
        Ok(_) => Err(EndReason::Lost),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// The status of a refusal because of another holder.
const LOCKED_STATUS: u16 = 423;
