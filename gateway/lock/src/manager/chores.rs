//! The background work of a session beside its heartbeats: cleanup, comparison with the peers, and the audit of write
//! access to the nodes.

use std::{convert::Infallible, future::pending, rc::Rc, sync::Arc};

use fencegate_idempotency::{expiry, index::OperationIndex};
use fencegate_recipe::janitor;
use fencegate_zookeeper::session::{
    acl_audit, active_session::ActiveSession, client::ZkClient, plan_compare, plan_watch,
    settings::SessionSettings,
};

use crate::manager::ended_sessions::{EndedSessions, MemberWatcher};

/// The chores for [`fencegate_zookeeper::session::supervisor::supervise_session`], which itself depends neither on locks nor on operations.
pub fn session_background_work<L: ZkClient>(
    settings: Rc<SessionSettings>,
    index: Arc<OperationIndex>,
    ended_sessions: Arc<EndedSessions>,
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
