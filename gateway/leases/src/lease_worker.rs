//! Takes the locks of leases and queries peers about theirs, apart from all workers: a lease outlives the request
//! that created it, and the worker that had the request.

use std::{io, rc::Rc, sync::Arc, thread, time::Duration};

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_http::network::Network;
use fencegate_lock::manager::{
    lock_manager::{AcquireError, LockManager},
    lock_request::{LockRequest, WaitPlace},
};
use fencegate_peers::{LocalPeerIdentity, plan_compat::PlanCompat};
use fencegate_policies::plan::HoldPolicy;
use fencegate_process::{clock::SharedClock, failpoint, liveness::ThreadRole};
use fencegate_refusal::Refusal;
use fencegate_zookeeper::session::paths::ZkPaths;
use futures_util::future::BoxFuture;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, LocalSet, spawn_local},
};

use super::{
    command::LeaseCommand,
    lease::{Lease, LeaseEndReason},
    lease_table::{LeaseSettings, LeaseTable, LeaseTableParts},
    peer_client::PeerClient,
};

/// What the leases of a process are made of.
pub struct LeaseWorkerConfig<N> {
    pub process: Arc<ProcessContext>,
    pub name: Arc<str>,
    pub keeper: LockManager,
    pub in_force: CurrentConfig,
    /// Compares the locks of peers with those of this gateway.
    pub agreement: Arc<PlanCompat>,
    pub network: N,
    /// The identity of this process for peers, if they can reach it.
    pub ours: Option<LocalPeerIdentity>,
}

/// The name of requests for leases among the waiters for locks.
const NAME: &str = "(lease)";

/// Takes the locks, once it is run.
pub struct LeaseWorker<N> {
    leases: Arc<LeaseTable>,
    network: N,
    clock: SharedClock,
    ours: Option<LocalPeerIdentity>,
    turning: BoxFuture<'static, ()>,
    given: mpsc::UnboundedReceiver<LeaseCommand>,
}

impl<N: Network> LeaseWorker<N> {
    pub fn new(config: LeaseWorkerConfig<N>, settings: LeaseSettings) -> (Arc<LeaseTable>, Self) {
        let LeaseWorkerConfig { process, name, keeper, in_force, agreement, network, ours } = config;
        let (tasks, given) = mpsc::unbounded_channel();
        let clock = process.clock.clone();
        // Runs as long as the thread runs its tasks: it answers the liveness checks.
        let turning: BoxFuture<'static, ()> = Box::pin(process.threads.register(ThreadRole::Leases));
        let parts = LeaseTableParts { process, gateway: name, keeper, tasks, in_force, agreement };
        let leases = Arc::new(LeaseTable::new(parts, settings));
        let worker = Self { leases: leases.clone(), network, clock, ours, turning, given };
        (leases, worker)
    }

    /// Runs on a thread of its own, which ends with the process.
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

    /// Returns when all senders of commands are gone. Call it inside a `LocalSet`.
    pub async fn run(self) {
        let Self { leases, network, clock, ours, turning, mut given } = self;
        drop(spawn_local(turning));
        let remotes =
            Rc::new(PeerClient { network, clock, ours, keeper: leases.keeper.clone(), idle: Rc::default() });
        let swept = leases.clone();
        let tended = remotes.idle.clone();
        drop(spawn_local(async move { swept.sweep().await }));
        drop(spawn_local(async move { tended.evict_idle().await }));
        let mut following: Option<JoinHandle<()>> = None;
        while let Some(task) = given.recv().await {
            match task {
                LeaseCommand::Acquire { lease, wait } => {
                    drop(spawn_local(acquire(leases.clone(), lease, wait)))
                }
                LeaseCommand::FollowCredentials(authority) => {
                    let next = spawn_local(async move { authority.watch_files().await });
                    if let Some(before) = following.replace(next) {
                        before.abort();
                    }
                }
                LeaseCommand::AskPeer { member, question, told } => {
                    let remotes = remotes.clone();
                    drop(spawn_local(async move { remotes.run(member, question, told).await }));
                }
            }
        }
    }
}

/// Returns when the lease has its lock or is over.
async fn acquire(leases: Arc<LeaseTable>, lease: Arc<Lease>, wait: Duration) {
    failpoint::pass("before_lease_taken");
    let name = NAME.into();
    let request = LockRequest {
        keys: &lease.keys,
        sites: &lease.sites,
        mode: lease.mode,
        hold: HoldPolicy::Strict,
        wait,
        queue: usize::MAX,
        waits: WaitPlace::Here,
        delay: None,
        route: &name,
    };
    let granted = tokio::select! {
        granted = leases.keeper.acquire_lease(request, lease.ahead.clone()) => granted,
        // A lock that is granted at this moment is released with the future.
        () = lease.wait_decided() => return,
    };
    match granted {
        Ok(lock) => match check_grantable(&leases, &lease, lock.session_id()).await {
            Ok(()) => lease.on_granted(lock),
            Err(why) => {
                lock.release();
                leases.end(&lease, why);
            }
        },
        Err(AcquireError::Locked | AcquireError::Delayed(_) | AcquireError::QueueFull) => {
            leases.end(&lease, LeaseEndReason::GaveUp)
        }
        Err(refused) => leases.end(
            &lease,
            LeaseEndReason::Refused(Box::new(Refusal::from_lock_error(&refused, LOCKED_STATUS))),
        ),
    }
}

/// The lock is held by this session, and the lease may have waited for it for a day: so the check is repeated.
async fn check_grantable(leases: &LeaseTable, lease: &Lease, session: i64) -> Result<(), LeaseEndReason> {
    // Its id names the session that holds it: peers send requests about it there.
    if ZkPaths::member_name(&leases.gateway, session) != lease.id.member() {
        return Err(LeaseEndReason::Lost);
    }
    let refused = |refusal| LeaseEndReason::Refused(Box::new(refusal));
    match leases.check_plan_compat(&leases.in_force.plan(), &lease.keys).await {
        Ok(agreed) if agreed == session => Ok(()),
        Ok(_) => Err(LeaseEndReason::Lost),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// The status of a refusal because of another holder.
const LOCKED_STATUS: u16 = 423;
