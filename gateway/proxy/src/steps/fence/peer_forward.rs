//! Sends a request to the gateway that holds its key, and reports how the request ended, as far as that is known.
//!
//! A pause anywhere in this module makes a request late, and does no other harm: tokens come only from the tenure of
//! the other gateway, and this gateway holds nothing during the exchange. A request of which a byte was written is
//! never sent again.

use std::{pin::pin, rc::Rc, time::Duration};

use fencegate_guard_client::callback::CallbackTicket;
use fencegate_http::{
    body::{Body, Reply, TrailerPolicy, hop_by_hop},
    network::Network,
};
use fencegate_http_client::upstream::client_connection::{AcceptsTrailers, SendRequestError};
use fencegate_leases::PresentedLease;
use fencegate_lock::manager::ended_sessions::EndedPeerSessions;
use fencegate_metrics::PeerForwardLabel;
use fencegate_peers::{
    LocalPeerIdentity, PeerReportedOutcome,
    header::{self, PeerForwardedIdentity},
    pool::{PeerConnection, PeerDialOptions, PeerPool},
};
use fencegate_policies::{key::ResourceKey, plan::CommonServingPlan};
use fencegate_protocol::headers::{FENCING_FORWARDED, FENCING_LEASE, FENCING_TICKET, FENCING_TOKEN};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use fencegate_zookeeper::peer_endpoint::HolderRoute;
use hyper::{
    HeaderMap, Request, Response, Version,
    body::Incoming,
    header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TE, TRANSFER_ENCODING},
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    plan_context::WorkerPlanContext,
    request_context::PeerForwardFacts,
    steps::{
        client_liveness::{ClientDisconnectWatch, client_disconnect_channel},
        key::KeyedRequest,
        upgrade::ClientUpgradeProtocols,
    },
};

/// Forwards requests to other gateways. Each worker has one for each plan.
pub struct PeerForwarder<N> {
    pub network: N,
    pub local_peer: LocalPeerIdentity,
    pub plan: Rc<WorkerPlanContext>,
    /// Idle connections. They are kept when the plan changes.
    pub idle: Rc<PeerPool>,
}

/// The request to send, and the gateway to send it to.
#[derive(Clone, Copy)]
pub struct PeerForwardRequest<'r> {
    /// The route to the gateway that holds the key.
    pub route: &'r HolderRoute,
    pub key: &'r ResourceKey,
    pub request: &'r KeyedRequest,
    /// The digest of the client's certificate, where it is a part of the operation's fingerprint.
    pub certificate: Option<&'r str>,
    /// How long the request may wait for its key at the other gateway.
    pub left: Duration,
    pub ended_sessions: &'r EndedPeerSessions,
}

/// The result of sending a request to another gateway.
pub enum PeerForwardOutcome {
    /// The answer of the other gateway, which goes to the client unchanged.
    Answered(Reply),
    /// The other gateway has dispatched nothing and cannot do so any more, so the request may queue here. The reason is
    /// for the log.
    Requeue(&'static str),
    /// As [`PeerForwardOutcome::Requeue`], because the other gateway could not be reached. Another attempt now would fail as well.
    Unreachable(&'static str),
    /// The request is refused, because its client has disconnected or its outcome is unknown.
    Refused(Refusal),
}

/// The time that is added to the sum of the other gateway's own time limits.
const MARGIN: Duration = Duration::from_secs(5);

/// The interval of liveness probes to a gateway whose session has ended, and the longest time for each answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

impl<N: Network> PeerForwarder<N> {
    /// Forwards a request, and waits for its answer as long as its client does.
    ///
    /// # Cancellation
    /// The future must not be dropped before it returns: it would not be known whether a byte was written.
    pub async fn forward(
        &self,
        outbound: PeerForwardRequest<'_>,
        client: &mut ClientDisconnectWatch,
    ) -> PeerForwardOutcome {
        let PeerForwardRequest { route, request, .. } = outbound;
        if request.http.extensions().get::<ClientUpgradeProtocols>().is_some() {
            return PeerForwardOutcome::Requeue("it asks for another protocol");
        }
        let gateway = route.gateway.clone();
        request.context.peer.replace(Some(PeerForwardFacts { gateway, sent: None, answer: None }));
        let outcome = self.send(outbound, client).await;
        let counted = match &outcome {
            PeerForwardOutcome::Answered(_) => PeerForwardLabel::Answered,
            PeerForwardOutcome::Requeue(reason) | PeerForwardOutcome::Unreachable(reason) => {
                debug!(gateway = %route.gateway, why = reason, "back from another gateway");
                request.context.peer.take();
                PeerForwardLabel::Requeued
            }
            PeerForwardOutcome::Refused(refusal) if refusal.outcome() == DispatchOutcome::Unknown => {
                if client.is_disconnected() {
                    PeerForwardLabel::ClientGone
                } else {
                    PeerForwardLabel::Unknown
                }
            }
            PeerForwardOutcome::Refused(_) => return outcome,
        };
        if let Some(id) = request.route {
            self.plan.metrics.route(id).record_forward(counted);
        }
        outcome
    }

    /// Forwards a request, and waits as long as its client does, but no longer than half of this process's drain: an
    /// answer that is missing by then could take longer than the process has left.
    pub(super) async fn forward_while_serving(
        &self,
        outbound: PeerForwardRequest<'_>,
        client: &mut ClientDisconnectWatch,
        drain: &CancellationToken,
    ) -> PeerForwardOutcome {
        let (present, mut watch) = client_disconnect_channel();
        let mut forwarding = pin!(self.forward(outbound, &mut watch));
        let drained = tokio::select! {
            outcome = &mut forwarding => return outcome,
            () = client.wait_disconnected() => false,
            () = wait_drain_handover(drain, &outbound.request.plan) => true,
        };
        // The drop tells the forwarder that the client has disconnected. The wait goes on, because only the forwarder
        // can report whether a byte was written.
        drop(present);
        match forwarding.await {
            PeerForwardOutcome::Refused(refusal) if drained => {
                PeerForwardOutcome::Refused(stopped_refusal(refusal.outcome()))
            }
            outcome => outcome,
        }
    }

    async fn send(
        &self,
        outbound: PeerForwardRequest<'_>,
        client: &mut ClientDisconnectWatch,
    ) -> PeerForwardOutcome {
        let PeerForwardRequest { route, request, left, ended_sessions, .. } = outbound;
        let until = Instant::now() + left;
        let due = until + self.response_timeout(request);
        let dial_within = |left| PeerDialOptions {
            network: &self.network,
            clock: &self.plan.process.clock,
            secured: self.local_peer.secured.as_deref(),
            // The idle timeout of the other gateway is not known; the gateways of an installation usually have the same
            // settings.
            kept: self.plan.config.plan.listener.timeouts.idle / 2,
            left,
        };
        let probe_dial = dial_within(PROBE_INTERVAL * 2);
        let mut fresh = false;
        loop {
            let dial = dial_within(until.saturating_duration_since(Instant::now()));
            let connection = tokio::select! {
                connection = PeerConnection::acquire(&dial, &self.idle, route, fresh) => connection,
                () = client.wait_disconnected() => return PeerForwardOutcome::Refused(client_gone_refusal(RefusalReason::Locked)),
            };
            let Ok(mut connection) =
                connection.inspect_err(|error| debug!(gateway = %route.gateway, %error, "not reached"))
            else {
                self.idle.close_idle(route);
                return PeerForwardOutcome::Unreachable("the other gateway cannot be reached");
            };
            let Some(copy) = request.try_clone() else {
                return PeerForwardOutcome::Requeue("its body is not here in full");
            };
            let Some(http) = self.build_request(*copy.http, outbound, until) else {
                return PeerForwardOutcome::Requeue("its key does not fit into a field");
            };
            let gateway = route.gateway.clone();
            let sent = Instant::now();
            request.context.peer.replace(Some(PeerForwardFacts { gateway, sent: Some(sent), answer: None }));
            let answer = connection.send(http, due.saturating_duration_since(Instant::now()));
            let answered = tokio::select! {
                answered = answer => answered,
                ended = wait_stop(client, due) => return abort_exchange(ended, &mut connection),
                () = self.wait_holder_lost(&probe_dial, route, ended_sessions) => {
                    self.idle.close_idle(route);
                    return abort_exchange(PeerWaitStopReason::HolderLost, &mut connection);
                }
            };
            match answered {
                Ok(response) => return self.handle_response(response, connection, request, sent, until),
                Err(failed) => match self.classify_error(failed, connection) {
                    // The other gateway closed the connection while it was idle, so the next attempt uses a new one.
                    PeerForwardError::Unsent { reused: true } => fresh = true,
                    PeerForwardError::Unsent { reused: false } => {
                        self.idle.close_idle(route);
                        return PeerForwardOutcome::Unreachable("not a byte could be sent");
                    }
                    PeerForwardError::Unknown(refusal) => return PeerForwardOutcome::Refused(refusal),
                },
            }
        }
    }

    /// Returns when the session of the other gateway has ended and its process no longer answers: it is frozen, cut off
    /// or gone. A process that answers still returns the request, or has dispatched it and gets the answer of the
    /// upstream.
    async fn wait_holder_lost(
        &self,
        dial: &PeerDialOptions<'_, N>,
        route: &HolderRoute,
        ended_sessions: &EndedPeerSessions,
    ) {
        ended_sessions.wait_for_session_end(&route.member).await;
        while dial.probe(route).await {
            sleep(PROBE_INTERVAL).await;
        }
    }

    /// The longest time that the other gateway may take beside the wait for the key: it buffers the body in full, may
    /// try the upstream twice, and buffers the answer in full before it sends a byte of it. After that time the outcome
    /// is unknown. A gateway that is frozen is given up sooner, when its session is over; this limit is for one whose
    /// session lives on.
    fn response_timeout(&self, request: &KeyedRequest) -> Duration {
        let plan = &self.plan.config.plan;
        let upstream = plan.upstream(request.upstream);
        let attempt = upstream.connect_timeout + upstream.response_timeout;
        attempt * 2 + upstream.response_body_idle + plan.listener.timeouts.request_body + MARGIN
    }

    /// Builds the request for the other gateway: the client's own, with the field by which this gateway proves to be
    /// one.
    fn build_request(
        &self,
        mut http: Request<Body>,
        PeerForwardRequest { route, key, request, certificate, .. }: PeerForwardRequest<'_>,
        until: Instant,
    ) -> Option<Request<Body>> {
        let left = until.saturating_duration_since(Instant::now());
        let client = PeerForwardedIdentity { certificate, name: request.source.client_name() };
        let value = header::encode(&route.secret, key.as_str(), left, client, &self.local_peer.name);
        let mut value = HeaderValue::from_str(&value).ok()?;
        // The field has a secret. Sensitive values are not logged, and not stored by header compression.
        value.set_sensitive(true);
        *http.version_mut() = Version::HTTP_11;
        if let Some(CallbackTicket::Valid(from)) = &request.source.callback {
            // The ticket is passed on, because the gateway that holds the key checks it.
            http.headers_mut().insert(FENCING_TICKET, from.ticket.clone());
            http.headers_mut().insert(FENCING_TOKEN, from.token_header.clone());
        }
        if let Some(PresentedLease::Valid(_, written)) = &request.source.lease {
            http.headers_mut().insert(FENCING_LEASE, written.clone());
        }
        let takes_trailers = http.extensions().get::<AcceptsTrailers>().is_some();
        let headers = http.headers_mut();
        headers.insert(FENCING_FORWARDED, value);
        if takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("TE"));
        }
        Some(http)
    }

    /// Decides by the head of the answer how the request ended.
    fn handle_response(
        &self,
        response: Response<Incoming>,
        mut connection: PeerConnection,
        request: &KeyedRequest,
        sent: Instant,
        until: Instant,
    ) -> PeerForwardOutcome {
        let Some(report) = PeerReportedOutcome::parse(response.headers()) else {
            connection.abort();
            warn!("a request sent on to another gateway got an answer that no gateway gives");
            return PeerForwardOutcome::Refused(Refusal::new(
                RefusalReason::OutcomeUnknown,
                "it answers as no gateway does",
            ));
        };
        if report.reason == Some(RefusalReason::PeerForbidden)
            && report.outcome == DispatchOutcome::NotDispatched
        {
            // The other gateway does not accept the peer secret any more, so its idle connections are closed as well.
            connection.abort();
            self.idle.close_idle(connection.holder_route());
            return PeerForwardOutcome::Requeue(RefusalReason::PeerForbidden.word());
        }
        if closes_connection(response.headers()) {
            // The other gateway is probably stopping. If it closed an idle connection just as a request is sent over
            // it, the outcome of that request would be unknown.
            self.idle.close_idle(connection.holder_route());
        }
        let gateway = connection.holder_route().gateway.clone();
        let reply = self.build_reply(response, connection, request);
        if report.is_peer_failure() && !(report.is_upstream_failure() && Instant::now() >= until) {
            let reason = report.reason.map_or("not-dispatched", RefusalReason::word);
            // The answer is short. It is read to its end only so that the connection can be used again.
            tokio::task::spawn_local(async move { drop(reply.into_body().buffer_if_short().await) });
            return PeerForwardOutcome::Requeue(reason);
        }
        let answer = Some((sent.elapsed(), report));
        request.context.peer.replace(Some(PeerForwardFacts { gateway, sent: Some(sent), answer }));
        PeerForwardOutcome::Answered(reply)
    }

    /// Passes the answer on as it is, without the hop-by-hop fields. Its report about the fence is trusted, because
    /// requests are forwarded only to gateways.
    fn build_reply(
        &self,
        response: Response<Incoming>,
        connection: PeerConnection,
        request: &KeyedRequest,
    ) -> Reply {
        let (mut head, incoming) = response.into_parts();
        if head.headers.contains_key(TRANSFER_ENCODING) {
            head.headers.remove(CONTENT_LENGTH);
        }
        let ours: HeaderMap = hop_by_hop::strip_hop_by_hop(&mut head.headers, &self.plan.config.plan.fields);
        head.headers.extend(ours);
        head.version = Version::HTTP_11;
        let idle = self.plan.config.plan.upstream(request.upstream).response_body_idle;
        let trailers = TrailerPolicy::Clean(request.plan.clone());
        Response::from_parts(head, connection.into_body(incoming, trailers, idle))
    }

    fn classify_error(&self, failed: SendRequestError, mut connection: PeerConnection) -> PeerForwardError {
        let unwritten = connection.abort();
        // The library gives a request back only if it has not begun to send it. If bytes were written all the same,
        // they are none of the request: TLS closes a connection with a message of its own.
        if unwritten || failed.request.is_some() {
            return PeerForwardError::Unsent { reused: connection.is_reused() };
        }
        PeerForwardError::Unknown(Refusal::new(
            RefusalReason::OutcomeUnknown,
            format!("another gateway: {}", failed.why),
        ))
    }
}

/// True if the other gateway closes the connection after this answer.
fn closes_connection(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// The result of an exchange with another gateway that got no answer.
enum PeerForwardError {
    Unsent { reused: bool },
    Unknown(Refusal),
}

/// The reason for which this gateway stops waiting for the answer of another one.
enum PeerWaitStopReason {
    ClientGone,
    TimedOut,
    /// The session of the other gateway has ended, and its process does not answer.
    HolderLost,
}

async fn wait_stop(client: &mut ClientDisconnectWatch, due: Instant) -> PeerWaitStopReason {
    tokio::select! {
        () = client.wait_disconnected() => PeerWaitStopReason::ClientGone,
        () = sleep_until(due) => PeerWaitStopReason::TimedOut,
    }
}

/// Closes the connection, which the other gateway takes for a client that disconnected: it drops a request that waits
/// for its lock, and finishes one that was dispatched.
fn abort_exchange(ended: PeerWaitStopReason, connection: &mut PeerConnection) -> PeerForwardOutcome {
    match (ended, connection.abort()) {
        (PeerWaitStopReason::ClientGone, true) => {
            PeerForwardOutcome::Refused(client_gone_refusal(RefusalReason::Locked))
        }
        (PeerWaitStopReason::ClientGone, false) => {
            PeerForwardOutcome::Refused(client_gone_refusal(RefusalReason::OutcomeUnknown))
        }
        (PeerWaitStopReason::HolderLost, true) => {
            PeerForwardOutcome::Unreachable("its session is over, and it does not answer")
        }
        (PeerWaitStopReason::HolderLost, false) => PeerForwardOutcome::Refused(Refusal::new(
            RefusalReason::OutcomeUnknown,
            "the session of another gateway is over, and it does not answer",
        )),
        (PeerWaitStopReason::TimedOut, true) => {
            PeerForwardOutcome::Unreachable("it took nothing of the request in time")
        }
        (PeerWaitStopReason::TimedOut, false) => PeerForwardOutcome::Refused(Refusal::new(
            RefusalReason::OutcomeLate,
            "another gateway did not answer in time",
        )),
    }
}

/// Returns when a draining gateway should send a waiting request elsewhere, after half of the drain.
pub(super) async fn wait_drain_handover(drain: &CancellationToken, plan: &CommonServingPlan) {
    drain.cancelled().await;
    sleep(plan.listener.timeouts.drain / 2).await;
}

fn stopped_refusal(outcome: DispatchOutcome) -> Refusal {
    let reason = if outcome == DispatchOutcome::NotDispatched {
        RefusalReason::Draining
    } else {
        RefusalReason::OutcomeUnknown
    };
    Refusal::new(reason, "another gateway had not answered when this one stops")
}

/// Refuses a request whose client has disconnected. Nobody reads the refusal.
fn client_gone_refusal(reason: RefusalReason) -> Refusal {
    Refusal::new(reason, "the client went away while another gateway had its request")
}

#[cfg(test)]
mod tests;
