//! Makes the tunnel after an answer that switches protocols.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_http::{
    body::{Body, Reply, hop_by_hop},
    upgrade::UpgradedIo,
};
use fencegate_http_client::upstream::{
    checkout::CheckedOutConnection,
    tunnel::{PendingTunnel, TunnelTimeouts},
};
use fencegate_policies::plan::{CommonServingPlan, RouteId};
use fencegate_process::clock::SendPermission;
use hyper::{Response, body::Incoming};
use tokio::sync::oneshot;

use crate::{
    concurrency_limit::ConcurrencyPermit, plan_context::WorkerPlanContext,
    steps::upgrade::UpstreamUpgradeRequest,
};

/// The limit of a tunnel without a lock: a year, in practice none. Only idleness ends such a tunnel.
const UNBOUNDED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The protocol that was requested from an upstream, and the source of its stream.
pub(super) struct PendingUpgrade {
    pub(super) requested: UpstreamUpgradeRequest,
    pub(super) stream: oneshot::Receiver<UpgradedIo>,
}

/// The plan and the route under which a tunnel is opened.
pub(super) struct TunnelContext<'a> {
    pub(super) plan: &'a WorkerPlanContext,
    pub(super) route: Option<RouteId>,
}

/// Counts the request for as long as its tunnel is open.
pub(super) struct TunnelCountGuard {
    pub(super) _permit: Option<Rc<ConcurrencyPermit>>,
    /// Counts a request that passes without a lock although its route fences.
    pub(super) _unlocked: Option<Rc<RunningRequestGuard>>,
}

impl PendingUpgrade {
    /// Makes the tunnel. For a fenced request, the task that keeps the key runs it.
    pub(super) fn into_tunnel_reply(
        self,
        context: &TunnelContext<'_>,
        answer: Response<Incoming>,
        checkout: CheckedOutConnection,
        permission: Option<Arc<dyn SendPermission>>,
        plan: &CommonServingPlan,
        counts: TunnelCountGuard,
    ) -> Reply {
        let bounds = TunnelTimeouts {
            idle: checkout.upstream().tunnel_idle,
            farewell: checkout.upstream().response_timeout,
            drain: plan.listener.timeouts.drain / 2,
        };
        let (mut head, _) = answer.into_parts();
        hop_by_hop::strip_hop_by_hop(&mut head.headers, &plan.fields);
        self.requested.write_upgrade_headers(&mut head.headers);
        let WorkerPlanContext { process, metrics, running, .. } = context.plan;
        let route = context.route.map_or(metrics.unrouted(), |id| metrics.route(id));
        let fenced = permission.is_some();
        let (stream_sender, client) = oneshot::channel();
        let body = Body::for_upgrade(stream_sender);
        let tunnel = PendingTunnel {
            client,
            upstream: self.stream,
            checkout,
            permission,
            clock: process.clock.clone(),
            bounds,
            drain: process.drain.clone(),
            counts: Box::new((counts, route.track_tunnel())),
        };
        if fenced {
            return Response::from_parts(head, body.with_upgrade_handler(tunnel));
        }
        running.spawn_local(async move { tunnel.run(UNBOUNDED).await });
        Response::from_parts(head, body)
    }
}
