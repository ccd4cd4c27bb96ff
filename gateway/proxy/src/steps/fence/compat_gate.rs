//! Refuses a request if an older gateway locks the same resource in another way.

use std::time::Duration;

use fencegate_peers::plan_compat::RouteCompatibility;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::{Instant, sleep_until};

use super::{deps::FenceDeps, request_grant::RequestGrant};
use crate::steps::{
    client_liveness::ClientDisconnectWatch,
    key::{KeyedRequest, RequestLockSpec},
};

/// However short the wait of the request, ZooKeeper has this long to publish a changed plan.
const MIN_WAIT: Duration = Duration::from_secs(1);

impl<N> FenceDeps<N> {
    /// Returns when the session that would take the lock may serve the route. Without a session it returns as well:
    /// the lock request then fails with that reason.
    pub(super) async fn wait_plan_compatible(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        deadline: Instant,
        client: &mut ClientDisconnectWatch,
    ) -> Result<(), Refusal> {
        let deadline = deadline.max(Instant::now() + MIN_WAIT);
        let mut news = None;
        loop {
            let Some(session) = self.keeper.session_id_for(&fenced.keys[0]) else { return Ok(()) };
            match self.accord.route_compatibility(session, fenced.route) {
                RouteCompatibility::Compatible => return Ok(()),
                RouteCompatibility::Incompatible(by) => {
                    let detail = format!("FG0550: {by} is older, and locks the resource in another way");
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, detail));
                }
                RouteCompatibility::Unknown => {}
            }
            // Most requests need not subscribe. One that does checks once more, because a change may have come
            // before.
            let Some(news) = &mut news else {
                news = Some(self.accord.subscribe());
                continue;
            };
            tokio::select! {
                _ = news.changed() => {}
                () = sleep_until(deadline) => {
                    let detail = "FG0550: the route is new, and other gateways do not know of it yet";
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, detail));
                }
                () = self.wait_drain(request.plan.listener.timeouts.drain / 2) => {
                    let detail = "the other gateways did not know of the route yet when the gateway stops";
                    return Err(Refusal::new(RefusalReason::Draining, detail));
                }
                () = client.wait_disconnected() => {
                    return Err(Refusal::new(RefusalReason::Locked, "the client went away while waiting"));
                }
            }
        }
    }

    /// Whether the session that got the lock may serve the route. It may be another session than the one that was
    /// checked before.
    pub(super) fn is_session_compatible(&self, fenced: &RequestLockSpec, held: &RequestGrant) -> bool {
        self.accord.route_compatibility(held.tenure.validity().session_id(), fenced.route)
            == RouteCompatibility::Compatible
    }
}
