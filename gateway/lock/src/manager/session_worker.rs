//! The session's side of the lock manager: serves the commands of workers to one session, on the session's thread, and
//! does its background work.

use std::{convert::Infallible, future::pending, rc::Rc, sync::Arc};

use fencegate_idempotency::{
    expiry,
    index::{CachedOperationShardCounts, OperationIndex},
    write_ahead,
};
use fencegate_recipe::janitor;
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        acl_audit,
        active_session::{ActiveSession, CurrentSession, SessionState},
        client::{ZkClient, ZkConnector},
        plan_compare, plan_watch,
        settings::SessionSettings,
        supervisor::supervise_session,
    },
};
use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    admin::handlers, key_task::run_key_task, orphan_cleanup, session_command::SessionCommand, uncached_task,
};
use crate::manager::{
    admin::handlers::AdminQueryLimiter,
    ended_sessions::{EndedPeerSessions, MemberWatcher},
    key_slot::table::KeySlotTable,
};

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

    /// Serves commands and keeps the session until `stop`; then closes the session, and the server removes all its
    /// nodes with it. Call it on a current-thread runtime inside a `LocalSet`.
    pub async fn run<C: ZkConnector>(
        self,
        connect: C,
        settings: Rc<SessionSettings>,
        stop: CancellationToken,
    ) {
        let Self { mut work, view, table, census } = self;
        let current = Rc::new(CurrentSession::default());
        let counts = Rc::new(CachedOperationShardCounts::default());
        let turns = AdminQueryLimiter::default();
        let tasks = TaskTracker::new();
        let close = CancellationToken::new();
        // The tasks of lock nodes that belong to one request or one client, and are not cached.
        let alone = TaskTracker::new();
        let chores = session_background_work(settings.clone(), census.clone(), table.ended_sessions.clone());
        drop(tasks.spawn_local(orphan_cleanup::run_grant_record_cleanup(current.clone(), stop.clone())));
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
                // No request or lease is left, so the session is closed. Idle keys may be many, so their nodes are left
                // to be removed with the session, in one transaction.
                Some(live) if alone.is_empty() => live.registry.end_tenures_before_close(),
                // A client holds a lease, so the session is not closed. The idle keys are released one by one;
                // otherwise they would stay locked until the session times out.
                Some(live) => live.registry.evict_idle_tenures(),
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

/// The longest time that the tasks of the keys may take to end after everything else has stopped.
const SHUTDOWN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// The chores for [`fencegate_zookeeper::session::supervisor::supervise_session`], which itself depends neither on locks nor on operations.
pub fn session_background_work<L: ZkClient>(
    settings: Rc<SessionSettings>,
    index: Arc<OperationIndex>,
    ended_sessions: Arc<EndedPeerSessions>,
) -> impl AsyncFn(&ActiveSession<L>) -> Infallible {
    async move |live: &ActiveSession<L>| {
        let every = live.heartbeat_schedule().timeout;
        let audited = async {
            acl_audit::audit_once(live, &settings).await;
            pending::<Infallible>().await
        };
        let mut member_watcher = MemberWatcher::new(&ended_sessions);
        let strangers = |unlike| index.set_incompatible_peers(unlike > 0);
        tokio::select! {
            never = audited => never,
            never = janitor::run_ownerless_node_sweeps(live, every) => never,
            never = janitor::remove_unused_parents(live) => never,
            never = expiry::run_expiry_sweeps(live, &index) => never,
            never = plan_compare::run_fingerprint_comparison(live, &settings, every, strangers) => never,
            never = plan_watch::run_plan_evaluation(live, every, |members| member_watcher.update_members(members)) => never,
        }
    }
}
