//! The session's side of the lock manager: serves the commands of workers to one session, on the session's thread.

use std::{rc::Rc, sync::Arc};

use fencegate_idempotency::{index::OperationIndex, shard_counts::OperationShardCounts, write_ahead};
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        active_session::{CurrentSession, SessionState},
        client::ZkConnector,
        settings::SessionSettings,
        supervisor::supervise_session,
    },
};
use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    admin::handlers::{self},
    chores,
    key_task::run_key_task,
    orphan_cleanup,
    session_command::SessionCommand,
    uncached_task,
};
use crate::manager::{admin::handlers::AdminQueryLimiter, key_slot::table::KeySlotTable};

/// The worker of one session.
pub struct SessionWorker {
    work: mpsc::UnboundedReceiver<SessionCommand>,
    view: watch::Sender<SessionState>,
    table: Arc<KeySlotTable>,
    /// The process's index of operations, shared by all sessions.
    census: Arc<OperationIndex>,
}

impl SessionWorker {
    pub(super) fn new(
        work: mpsc::UnboundedReceiver<SessionCommand>,
        view: watch::Sender<SessionState>,
        table: Arc<KeySlotTable>,
        census: Arc<OperationIndex>,
    ) -> Self {
        Self { work, view, table, census }
    }

    /// Serves and keeps the session until `stop`; then closes the session, and all its nodes are removed with it. Call
    /// it on a current-thread runtime inside a `LocalSet`.
    pub async fn run<C: ZkConnector>(
        self,
        connect: C,
        settings: Rc<SessionSettings>,
        stop: CancellationToken,
    ) {
        let Self { mut work, view, table, census } = self;
        let current = Rc::new(CurrentSession::default());
        let counts = Rc::new(OperationShardCounts::default());
        let turns = AdminQueryLimiter::default();
        let tasks = TaskTracker::new();
        let close = CancellationToken::new();
        // The tasks of nodes that belong to one request or one client.
        let alone = TaskTracker::new();
        let chores =
            chores::session_background_work(settings.clone(), census.clone(), table.ended_sessions.clone());
        drop(tasks.spawn_local(orphan_cleanup::run_orphan_cleanup(current.clone(), stop.clone())));
        let session = supervise_session(connect, settings, current.clone(), view, close.clone(), chores);
        let serving = async {
            while let Some(command) =
                tokio::select! { command = work.recv() => command, () = stop.cancelled() => None }
            {
                match (command, current.session()) {
                    (SessionCommand::AcquireUncached(request), Some(live)) => {
                        let served = alone.track_future(uncached_task::acquire_and_hold(live, request));
                        drop(tasks.spawn_local(served));
                    }
                    (SessionCommand::AcquireUncached(request), None) => {
                        drop(request.caller.send(Err(GrantError::Lost)))
                    }
                    (SessionCommand::AdmitOperation(admission), _) => {
                        let current = current.clone();
                        let counts = counts.clone();
                        let census = census.clone();
                        drop(
                            tasks
                                .spawn_local(write_ahead::run_operation(current, counts, census, *admission)),
                        );
                    }
                    (SessionCommand::Query(question), _) => {
                        drop(tasks.spawn_local(handlers::answer_query(
                            current.clone(),
                            turns.clone(),
                            question,
                        )));
                    }
                    (SessionCommand::ServeKey(slot), _) => {
                        drop(tasks.spawn_local(run_key_task(slot, table.clone(), current.clone())));
                    }
                }
            }
            match current.session() {
                // No request or lease is left. Idle keys may be many, so their nodes go with the session, in one
                // transaction.
                Some(live) if alone.is_empty() => live.registry.end_idle_before_close(),
                // A client holds a lease, so the session is not closed. The idle keys are released one by one, or they
                // would wait for its timeout.
                Some(live) => live.registry.evict_idle(),
                None => {}
            }
            tasks.close();
            // A session cannot be closed while a task still uses it.
            tokio::time::timeout(SHUTDOWN_TIMEOUT, tasks.wait()).await.ok();
            close.cancel();
        };
        tokio::join!(session, serving);
    }
}

/// How long the tasks of the keys may take to end after everything else has stopped.
const SHUTDOWN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
