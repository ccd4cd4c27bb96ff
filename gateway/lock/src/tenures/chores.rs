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
pub fn of<L: ZkClient>(
    settings: Rc<SessionSettings>,
    census: Arc<OperationIndex>,
    ended_sessions: Arc<EndedSessions>,
) -> impl AsyncFn(&ActiveSession<L>) -> Infallible {
    async move |live: &ActiveSession<L>| {
        let every = live.rhythm().timeout;
        let audited = async {
            open_nodes::once(live, &settings).await;
            pending::<Infallible>().await
        };
        let mut member_watcher = MemberWatcher::new(&ended_sessions);
        let strangers = |unlike| census.strangers(unlike > 0);
        tokio::select! {
            never = audited => never,
            never = janitor::sweep_every(live, every) => never,
            never = janitor::leave_unused_parents(live) => never,
            never = sweep::sweep_every(live, &census) => never,
            never = compare::watch(live, &settings, every, strangers) => never,
            never = judged::watch(live, every, |members| member_watcher.update(members)) => never,
        }
    }
}
