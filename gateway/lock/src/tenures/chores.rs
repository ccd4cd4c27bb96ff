//! What a session does beside its heartbeats for as long as it lives: it tidies up, looks at the other gateways, and who may
//! write the nodes.

use std::{convert::Infallible, future::pending, rc::Rc, sync::Arc};

use crate::{
    once::{census::OperationIndex, sweep},
    recipe::janitor,
    session::{compare, judged, link::ZkClient, live::ActiveSession, open_nodes, settings::SessionSettings},
    tenures::ended_sessions::{EndedSessions, MemberWatcher},
};

/// The chores for [`crate::session::supervise::supervise`], which itself knows neither locks nor operations.
pub fn session_chores<L: ZkClient>(
    settings: Rc<SessionSettings>,
    census: Arc<OperationIndex>,
    ended_sessions: Arc<EndedSessions>,
) -> impl AsyncFn(&ActiveSession<L>) -> Infallible {
    async move |live: &ActiveSession<L>| {
        let every = live.heartbeat_schedule().timeout;
        let audited = async {
            open_nodes::audit_once(live, &settings).await;
            pending::<Infallible>().await
        };
        let mut member_watcher = MemberWatcher::new(&ended_sessions);
        let strangers = |unlike| census.set_incompatible_peers(unlike > 0);
        tokio::select! {
            never = audited => never,
            never = janitor::sweep_every(live, every) => never,
            never = janitor::remove_unused_parents(live) => never,
            never = sweep::sweep_every(live, &census) => never,
            never = compare::watch_plans(live, &settings, every, strangers) => never,
            never = judged::watch_plans(live, every, |members| member_watcher.update(members)) => never,
        }
    }
}
