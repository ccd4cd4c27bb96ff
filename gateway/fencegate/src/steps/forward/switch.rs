//! From an answer that switches protocols to the tunnel behind it.

use std::{sync::Arc, time::Duration};

use fencegate_http::{
    body::{Body, Reply, fields, parting::Switched},
    upstream::{
        lend::Lend,
        tunnel::{Bounds, Tunnel},
    },
};
use fencegate_policies::plan::Plan;
use fencegate_process::clock::Permission;
use hyper::{Response, body::Incoming};
use tokio::sync::oneshot;

use super::Forward;
use crate::{stage::Notes, steps::upgrade::Asked};

/// A tunnel that holds nothing ends when it is idle.
const UNBOUNDED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What an upstream was asked for, and where its stream will come from.
pub(super) struct Switch {
    pub(super) asked: Asked,
    pub(super) stream: oneshot::Receiver<Switched>,
}

impl Switch {
    /// What goes on is a tunnel. Under a dispatch it is run by who keeps the key.
    pub(super) fn tunnel<N>(
        self,
        forward: &Forward<N>,
        answer: Response<Incoming>,
        (lend, permission): (Lend, Option<Arc<dyn Permission>>),
        (plan, notes): (&Plan, &Notes),
    ) -> Reply {
        let bounds = Bounds {
            idle: lend.upstream().tunnel_idle,
            farewell: lend.upstream().response_timeout,
            drain: plan.listener.timeouts.drain / 2,
        };
        let (mut head, _) = answer.into_parts();
        fields::clean(&mut head.headers, &plan.fields);
        self.asked.grant(&mut head.headers);
        let metrics = &forward.metrics;
        let route = notes.route.get().map_or(metrics.unrouted(), |id| metrics.route(id));
        let fenced = permission.is_some();
        let (taker, client) = oneshot::channel();
        let body = Body::parting(taker);
        let tunnel = Tunnel {
            client,
            upstream: self.stream,
            lend,
            permission,
            clock: forward.clock.clone(),
            bounds,
            drain: forward.drain.clone(),
            counts: Box::new((notes.permit.get().cloned(), route.tunnel())),
        };
        if fenced {
            return Response::from_parts(head, body.passing(tunnel));
        }
        forward.running.spawn_local(async move { tunnel.run(UNBOUNDED).await });
        Response::from_parts(head, body)
    }
}
