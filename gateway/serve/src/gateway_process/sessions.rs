//! Runs the sessions on a thread of their own: a worker that computes for long must not let them expire.

use std::{convert::Infallible, io, rc::Rc, sync::Arc, thread};

use fencegate_config::process_context::ProcessContext;
use fencegate_lock::manager::{
    lock_manager::{self, LockManager},
    session_worker::SessionWorker,
};
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::{
    liveness::{ThreadMonitor, ThreadRole},
    randomness::SystemRandomness,
};
use fencegate_zookeeper::{
    limits::SEQUENCE_LIMIT,
    session::{
        credentials::ZkTlsCredentialsError, instrumented::InstrumentedZk, local_member::LocalMember,
        log_dedup::LogDedup, servers::ZkServers, settings::SessionSettings,
    },
    state::HighestEpochTracker,
};
use futures_util::future::join_all;
use tokio::{sync::oneshot, task::LocalSet};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::options::GatewayOptions;

/// The thread of the sessions.
pub(super) struct SessionThread {
    thread: thread::JoinHandle<()>,
    close: CancellationToken,
    /// Closes without a message when the thread panics.
    pub(super) end: oneshot::Receiver<Infallible>,
}

impl SessionThread {
    /// Starts a session for each session worker.
    pub(super) fn start(
        session_workers: Vec<(SessionWorker, SessionSettings)>,
        servers: ZkServers,
        threads: &ThreadMonitor,
    ) -> io::Result<Self> {
        let (alive, end) = oneshot::channel::<Infallible>();
        let close = CancellationToken::new();
        let closed = close.clone();
        let liveness = threads.register(ThreadRole::Sessions);
        let thread = thread::Builder::new().name("session".into()).spawn(move || {
            let _alive = alive;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime =
                runtime.expect("a runtime needs an epoll instance, and the process has just started");
            let all = session_workers.into_iter().map(|(session_worker, settings)| {
                session_worker.run(
                    InstrumentedZk::new(servers.clone(), &settings.metrics),
                    Rc::new(settings),
                    closed.clone(),
                )
            });
            let tasks = LocalSet::new();
            tasks.spawn_local(liveness);
            tasks.block_on(&runtime, join_all(all));
        })?;
        Ok(Self { thread, close, end })
    }

    /// Releases all locks and closes the sessions. Must be called when no request runs under a lock.
    pub(super) fn close_sessions(self, token_history: &HighestEpochTracker) {
        self.close.cancel();
        let ended = self.thread.join();
        token_history.close();
        if ended.is_err() {
            error!("the session's thread panicked; its nodes are removed when the session times out");
        }
    }
}

/// Makes the source of connections to ZooKeeper, and reads its files for TLS now.
///
/// # Errors
/// Returns an error if the files cannot be used.
pub(super) fn servers(
    gateway: &GatewayPlan,
    process: &ProcessContext,
) -> Result<ZkServers, ZkTlsCredentialsError> {
    ZkServers::from_policy(&gateway.zookeeper)?.with_file_watch(&process.metrics.session(0))
}

/// Makes the lock manager, with a session worker for each session that serves it.
pub(super) fn build_lock_manager(
    gateway: &GatewayPlan,
    process: &ProcessContext,
) -> (LockManager, Vec<SessionWorker>) {
    let (lock_manager, session_workers) =
        lock_manager::create_lock_manager(process.clock.clone(), gateway.zookeeper.sessions);
    let counted = lock_manager.clone();
    process.metrics.set_key_counter(move || counted.key_count());
    (lock_manager, session_workers)
}

/// The settings of one session, by its number. The sessions share what one of them has learned about the
/// installation, and the reason for which ZooKeeper cannot be reached.
pub(super) fn session_settings(
    gateway: &GatewayPlan,
    name: &str,
    options: &GatewayOptions,
    process: &ProcessContext,
    member: &LocalMember,
    token_history: &Arc<HighestEpochTracker>,
) -> impl Fn(usize) -> SessionSettings {
    let log_dedup = Arc::new(LogDedup::default());
    move |number| SessionSettings {
        policy: gateway.zookeeper.clone(),
        gateway: name.to_owned(),
        member: member.clone(),
        init: options.init,
        clock: process.clock.clone(),
        randomness: Arc::new(SystemRandomness),
        token_history: token_history.clone(),
        sequence_limit: SEQUENCE_LIMIT,
        metrics: process.metrics.session(number),
        log_dedup: log_dedup.clone(),
    }
}
