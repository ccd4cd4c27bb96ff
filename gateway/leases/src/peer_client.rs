//! Queries the gateway that holds a lease, for a client that has sent its request to this gateway.

use std::{net::IpAddr, rc::Rc, time::Duration};

use bytes::Bytes;
use fencegate_http::{body::Body, network::Network};
use fencegate_lock::manager::admin_query::GatewayLocation;
use fencegate_peers::{
    LocalPeerIdentity, PeerPool, PeerReportedOutcome,
    header::{self, PeerForwardedIdentity},
    pool::{PeerConnection, PeerDialOptions},
};
use fencegate_protocol::headers::{FENCING_FORWARDED, FENCING_LEASE};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_endpoint::HolderRoute;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER},
};
use tokio::{sync::oneshot, time::timeout};
use tracing::debug;

use super::context::LeaseContext;

/// A request for a peer.
pub(super) struct PeerRequest {
    pub(super) method: Method,
    /// The path with its query.
    pub(super) path: String,
    /// The id of the lease, if the request concerns one.
    pub(super) lease: Option<HeaderValue>,
    pub(super) body: Bytes,
    /// How long the peer may take, beside the network.
    pub(super) patience: Duration,
    /// The client for which the peer counts the request.
    pub(super) client: Option<IpAddr>,
}

/// The response of the peer.
pub(super) struct PeerResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The time for both directions of the network and the gateway itself.
const MARGIN: Duration = Duration::from_secs(3);
/// The most bytes of a response. It is far more than any document about leases has.
const MAX_RESPONSE_LEN: usize = 1 << 20;
/// How long idle connections to peers are kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Queries peers, on one thread.
pub(super) struct PeerClient<N> {
    pub(super) context: LeaseContext,
    pub(super) network: N,
    pub(super) local_peer: Option<LocalPeerIdentity>,
    pub(super) idle: Rc<PeerPool>,
}

impl<N: Network> PeerClient<N> {
    pub(super) async fn run(
        &self,
        member: String,
        request: PeerRequest,
        mut reply: oneshot::Sender<Result<PeerResponse, Refusal>>,
    ) {
        let longest = request.patience + MARGIN;
        let answered = tokio::select! {
            answered = timeout(longest, self.send_request(member, &request)) => answered,
            // The caller has left. The peer may still have received the request.
            () = reply.closed() => return,
        };
        reply.send(answered.unwrap_or_else(|_| Err(peer_unavailable("it did not answer in time")))).ok();
    }

    /// Sends a request to the gateway whose session has the member node `member`.
    async fn send_request(&self, member: String, request: &PeerRequest) -> Result<PeerResponse, Refusal> {
        let no_peer = || peer_unavailable("the policy of this gateway has no `peer`");
        let local_peer = self.local_peer.as_ref().ok_or_else(no_peer)?;
        let route = match self.context.locks.locate_member(member).await {
            Ok(GatewayLocation::Elsewhere(route)) => route,
            Ok(GatewayLocation::Gone | GatewayLocation::Here) => {
                return Err(Refusal::new(RefusalReason::StaleToken, "the session of the lease is over"));
            }
            Ok(GatewayLocation::Unreachable) => {
                return Err(peer_unavailable("the gateway that holds it has no `peer`"));
            }
            Err(untold) => return Err(Refusal::new(RefusalReason::LockService, untold.to_string())),
        };
        match self.exchange(local_peer, request, &route, false).await {
            // The connection was closed while it was idle, so the request was not read.
            Err(PeerRequestError::Stale) => self.exchange(local_peer, request, &route, true).await,
            done => done,
        }
        .map_err(|unsent| match unsent {
            PeerRequestError::Stale => peer_unavailable("the connection ended before it answered"),
            PeerRequestError::Unavailable(why) => peer_unavailable(why),
        })
    }

    async fn exchange(
        &self,
        local_peer: &LocalPeerIdentity,
        request: &PeerRequest,
        route: &HolderRoute,
        fresh: bool,
    ) -> Result<PeerResponse, PeerRequestError> {
        let dial = PeerDialOptions {
            network: &self.network,
            clock: &self.context.process.clock,
            secured: local_peer.secured.as_deref(),
            kept: IDLE_TIMEOUT,
            left: MARGIN,
        };
        let connection = PeerConnection::acquire(&dial, &self.idle, route, fresh).await;
        let mut connection = connection.map_err(|error| {
            debug!(gateway = %route.gateway, %error, "not reached");
            PeerRequestError::Unavailable("it cannot be reached")
        })?;
        let http = build_request(local_peer, request, route)
            .ok_or(PeerRequestError::Unavailable("the question fits into no request"))?;
        let answer = match connection.send(http, request.patience + MARGIN).await {
            Ok(answer) => answer,
            Err(failed) => {
                let unwritten = connection.abort();
                let reused = connection.is_reused();
                debug!(gateway = %route.gateway, why = %failed.why, "a question broke off");
                let stale = reused && (unwritten || failed.request.is_some());
                return Err(if stale {
                    PeerRequestError::Stale
                } else {
                    PeerRequestError::Unavailable("the connection ended before it answered")
                });
            }
        };
        if PeerReportedOutcome::parse(answer.headers())
            .is_some_and(|report| report.reason == Some(RefusalReason::PeerForbidden))
        {
            connection.abort();
            return Err(PeerRequestError::Unavailable("it does not take us for a gateway"));
        }
        let (head, incoming) = answer.into_parts();
        let kept = [CONTENT_TYPE, RETRY_AFTER].into_iter();
        let headers = kept.filter_map(|name| Some((name.clone(), head.headers.get(name)?.clone()))).collect();
        let body = connection.into_body(
            incoming,
            fencegate_http::body::TrailerPolicy::Drop,
            request.patience + MARGIN,
        );
        let body = Limited::new(body, MAX_RESPONSE_LEN).collect().await;
        let body = body.map_err(|_| PeerRequestError::Unavailable("its answer broke off"))?.to_bytes();
        Ok(PeerResponse { status: head.status, headers, body })
    }
}

/// The peer has given no response.
enum PeerRequestError {
    /// The connection had ended before the request was sent.
    Stale,
    Unavailable(&'static str),
}

fn build_request(
    local_peer: &LocalPeerIdentity,
    request: &PeerRequest,
    route: &HolderRoute,
) -> Option<Request<Body>> {
    let mut http = Request::new(Body::from_bytes(request.body.clone()));
    *http.method_mut() = request.method.clone();
    *http.uri_mut() = request.path.parse().ok()?;
    let client = PeerForwardedIdentity::default();
    let forwarded = header::encode(&route.secret, NO_KEY, request.patience, client, &local_peer.name);
    let mut forwarded = HeaderValue::from_str(&forwarded).ok()?;
    forwarded.set_sensitive(true);
    let fields: [(HeaderName, HeaderValue); 4] = [
        (HOST, HeaderValue::from_str(&route.address).ok()?),
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CONTENT_LENGTH, HeaderValue::from(request.body.len())),
        (FENCING_FORWARDED, forwarded),
    ];
    let headers = http.headers_mut();
    headers.extend(fields);
    if let Some(client) = request.client {
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_str(&client.to_string()).ok()?);
    }
    if let Some(lease) = &request.lease {
        headers.insert(FENCING_LEASE, lease.clone());
    }
    Some(http)
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Takes the place of the key, which a request about a lease does not have.
const NO_KEY: &str = "-";

fn peer_unavailable(why: &'static str) -> Refusal {
    Refusal::new(RefusalReason::LeaseAway, why)
}
