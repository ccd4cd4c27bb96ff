//! Takes the locks of leases and queries peers about theirs, apart from all workers: a lease outlives the request
//! that created it, and the worker that had the request.

use std::{io, rc::Rc, sync::Arc, thread, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::manager::{
    lock_manager::AcquireError,
    lock_request::{LockRequest, LockWaitPlace},
};
use fencegate_peers::LocalPeerIdentity;
use fencegate_policies::plan::LockReusePolicy;
use fencegate_process::{failpoint, liveness::ThreadRole};
use fencegate_refusal::Refusal;
use fencegate_zookeeper::session::paths::ZkPaths;
use futures_util::future::BoxFuture;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, LocalSet, spawn_local},
};

use super::{
    command::LeaseThreadCommand,
    context::LeaseContext,
    lease::{Lease, LeaseEndReason},
    lease_table::{LeaseSettings, LeaseTable},
    peer_client::PeerClient,
};

/// The name of requests for leases among the waiters for locks.
const NAME: &str = "(lease)";

/// Takes the locks, once it is run.
pub struct LeaseWorker<N> {
    leases: Arc<LeaseTable>,
    network: N,
    local_peer: Option<LocalPeerIdentity>,
    /// Answers the liveness checks for as long as the thread runs its tasks.
    liveness: BoxFuture<'static, ()>,
    commands: mpsc::UnboundedReceiver<LeaseThreadCommand>,
}

impl<N: Network> LeaseWorker<N> {
    /// `local_peer`: the identity of this process for other gateways, if they can reach it.
    pub fn new(
        context: LeaseContext,
        settings: LeaseSettings,
        network: N,
        local_peer: Option<LocalPeerIdentity>,
    ) -> (Arc<LeaseTable>, Self) {
        let (sender, commands) = mpsc::unbounded_channel();
        let liveness = Box::pin(context.process.threads.register(ThreadRole::Leases));
        let leases = Arc::new(LeaseTable::new(context, sender, settings));
        let worker = Self { leases: leases.clone(), network, local_peer, liveness, commands };
        (leases, worker)
    }

    /// Runs on a thread of its own, which ends with the process.
    ///
    /// # Errors
    /// Returns an error if the machine has no thread.
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
        let Self { leases, network, local_peer, liveness, mut commands } = self;
        drop(spawn_local(liveness));
        let context = leases.context.clone();
        let peers = Rc::new(PeerClient { context, network, local_peer, idle: Rc::default() });
        let swept = leases.clone();
        let idle = peers.idle.clone();
        drop(spawn_local(async move { swept.run_lease_expiry().await }));
        drop(spawn_local(async move { idle.run_connection_sweeper().await }));
        let mut following: Option<JoinHandle<()>> = None;
        while let Some(command) = commands.recv().await {
            match command {
                LeaseThreadCommand::Acquire { lease, wait } => {
                    drop(spawn_local(acquire(leases.clone(), lease, wait)))
                }
                LeaseThreadCommand::FollowCredentials(authority) => {
                    let next = spawn_local(async move { authority.watch_files().await });
                    if let Some(before) = following.replace(next) {
                        before.abort();
                    }
                }
                LeaseThreadCommand::AskPeer { member, request, reply } => {
                    let peers = peers.clone();
                    drop(spawn_local(async move { peers.run(member, request, reply).await }));
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
        hold: LockReusePolicy::Strict,
        wait,
        queue: usize::MAX,
        waits: LockWaitPlace::Here,
        delay: None,
        route: &name,
    };
    let granted = tokio::select! {
        granted = leases.context.locks.acquire_lease(request, lease.ahead.clone()) => granted,
        // A lock that is granted at this moment is released with the future.
        () = lease.wait_decided() => return,
    };
    match granted {
        Ok(lock) => match check_grantable(&leases, &lease, lock.session_id()).await {
            Ok(()) => lease.on_granted(lock),
            Err(why) => {
                lock.release_when_idle();
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

/// Checks again whether the lease may be granted, now that this session holds its lock: the lease may have
/// waited for a day.
async fn check_grantable(leases: &LeaseTable, lease: &Lease, session: i64) -> Result<(), LeaseEndReason> {
    // The id of the lease names the session that holds it: peers send requests about the lease to that session.
    if ZkPaths::member_name(&leases.context.gateway, session) != lease.id.lease_member_node() {
        return Err(LeaseEndReason::Lost);
    }
    let refused = |refusal| LeaseEndReason::Refused(Box::new(refusal));
    match leases.check_plan_compat(&leases.config().plan(), &lease.keys).await {
        Ok(agreed) if agreed == session => Ok(()),
        Ok(_) => Err(LeaseEndReason::Lost),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// The status of a refusal because of another holder.
const LOCKED_STATUS: u16 = 423;
