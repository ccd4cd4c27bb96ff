//! Connections of one worker to other gateways. Each carries one exchange at a time, and is kept for a while after
//! it.

use std::{cell::RefCell, collections::HashMap, io, rc::Rc, sync::Arc, time::Duration};

use fencegate_http::{
    body::{Body, BodyObserver, TrailerPolicy},
    network::Network,
};
use fencegate_http_client::upstream::{
    address::ResolvedEndpoint,
    client_connection::{self, HTTP1, ResponseHeadLimits, SendRequestError},
    connection::UpstreamConnection,
    gate::{GateShutReason, GatedIo, WriteGate},
    resolver::dial,
    tls::UpstreamTlsConnector,
};
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use fencegate_zookeeper::{
    peer_endpoint::HolderRoute,
    peer_secret::{ChallengeNonce, PeerSecret},
};
use hyper::{
    Request, Response, StatusCode, Version,
    body::{Body as _, Incoming},
};
use tokio::time::{Instant, sleep, timeout};

use super::header;

struct IdlePeerConnection {
    connection: UpstreamConnection,
    pass: PeerSecret,
    since: Instant,
    until: Instant,
}

/// The idle connections, by the address of the other gateway.
#[derive(Default)]
pub struct PeerPool(RefCell<HashMap<Arc<str>, Vec<IdlePeerConnection>>>);

/// The longest time for which an idle connection is kept. The other gateway closes idle connections after its own
/// `timeouts.idle`, 75 s by default. If it did so just as a request is sent, the outcome of that request would be
/// unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time without an exchange the other gateway is challenged again before a request is sent: it may be
/// frozen, and the outcome of a request that is written to it would be unknown.
const REVERIFY_AFTER: Duration = Duration::from_secs(1);
/// The most idle connections that are kept to one gateway.
const MAX_IDLE_PER_PEER: usize = 64;
/// The most gateways to which idle connections are kept.
const MAX_PEERS: usize = 256;
/// The interval in which idle connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long an exchange may go on whose answer was complete before its request was sent. If the rest of the request
/// is not sent by then, the connection is closed.
const UPLOAD_GRACE: Duration = Duration::from_secs(1);
/// The longest time to connect and to get the answer to the challenge. The request waits during this time and can
/// still queue here, so a peer that does not answer should be noticed soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest time limit for that, even if the request has almost no time left.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(50);
/// The limits for an answer of another gateway: it has the fields of the upstream's answer and those of a gateway.
const RESPONSE_HEAD_LIMITS: ResponseHeadLimits = ResponseHeadLimits { fields: 288, bytes: 128 << 10 };
/// The most addresses of a host name that are tried. More are probably a mistake.
const MAX_ADDRESSES: usize = 8;

impl PeerPool {
    /// Takes the newest connection that is ready. Connections to an earlier process at this address are closed.
    fn take(&self, route: &HolderRoute) -> Option<IdlePeerConnection> {
        let mut all = self.0.borrow_mut();
        let idle = all.get_mut(&route.address)?;
        let now = Instant::now();
        idle.retain(|one| one.connection.is_usable() && now < one.until && one.pass == route.secret);
        let ready = idle.iter().rposition(|one| one.connection.is_ready())?;
        Some(idle.swap_remove(ready))
    }

    fn insert(&self, connection: UpstreamConnection, route: &HolderRoute, keep: Duration) {
        let mut all = self.0.borrow_mut();
        if !connection.is_usable() || (all.len() >= MAX_PEERS && !all.contains_key(&route.address)) {
            return;
        }
        let idle = all.entry(route.address.clone()).or_default();
        if idle.len() < MAX_IDLE_PER_PEER {
            let since = Instant::now();
            idle.push(IdlePeerConnection {
                connection,
                pass: route.secret.clone(),
                since,
                until: since + keep,
            });
        }
    }

    /// Closes the connections of a route that is no longer valid.
    pub fn close_idle(&self, route: &HolderRoute) {
        self.0.borrow_mut().remove(&route.address);
    }

    /// The number of idle connections to all peers, for tests.
    pub fn idle_count(&self) -> usize {
        self.0.borrow().values().map(Vec::len).sum()
    }

    /// Closes connections that were idle for too long. Never returns.
    pub async fn run_connection_sweeper(&self) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let now = Instant::now();
            self.0.borrow_mut().retain(|_, idle| {
                idle.retain(|one| one.connection.is_usable() && now < one.until);
                !idle.is_empty()
            });
        }
    }
}

/// The settings of new connections to other gateways.
pub struct PeerDialOptions<'a, N> {
    pub network: &'a N,
    pub clock: &'a SharedClock,
    pub secured: Option<&'a UpstreamTlsConnector>,
    /// The longest time for which connections may be idle.
    pub kept: Duration,
    /// How long the request may still wait. At most half of that time is spent on connecting: a request without a
    /// connection queues here for the rest.
    pub left: Duration,
}

impl<N: Network> PeerDialOptions<'_, N> {
    /// Connects, and checks by a challenge that the process at the other end has the peer secret.
    ///
    /// # Errors
    /// Returns an error if no process listens, or another process than the one of `route`. Nothing of a request was
    /// sent.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    async fn connect_verified(&self, route: &HolderRoute) -> io::Result<UpstreamConnection> {
        let proven = async {
            let mut connection = self.connect(route).await?;
            challenge(&mut connection, route).await?;
            Ok(connection)
        };
        self.with_timeout(proven).await
    }

    /// Checks an idle connection by a challenge, if it was idle for long. `None` if the other side has closed it.
    async fn reuse(
        &self,
        idle: IdlePeerConnection,
        route: &HolderRoute,
    ) -> io::Result<Option<UpstreamConnection>> {
        let IdlePeerConnection { mut connection, since, .. } = idle;
        if since.elapsed() < REVERIFY_AFTER {
            return Ok(Some(connection));
        }
        match self.with_timeout(challenge(&mut connection, route)).await {
            Ok(()) => Ok(Some(connection)),
            Err(late) if late.kind() == io::ErrorKind::TimedOut => Err(late),
            Err(_) => Ok(None),
        }
    }

    /// True if the process at the other end answers a challenge over a new connection.
    pub async fn probe(&self, route: &HolderRoute) -> bool {
        self.connect_verified(route).await.is_ok()
    }

    async fn with_timeout<T>(&self, proven: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let longest = (self.left / 2).clamp(MIN_CONNECT_TIMEOUT, CONNECT_TIMEOUT);
        timeout(longest, proven).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn connect(&self, route: &HolderRoute) -> io::Result<UpstreamConnection> {
        let found = self.network.resolve(&route.address).await?;
        let found = found.into_iter().take(MAX_ADDRESSES);
        let addresses: Vec<_> =
            found.map(|socket| ResolvedEndpoint::new(socket, route.address.clone())).collect();
        let (_, stream) = dial(self.network, &addresses, CONNECT_TIMEOUT, |_| {}).await?;
        let gate = Rc::new(WriteGate::new(self.clock.clone()));
        // The gate is directly above the socket and below TLS, because it counts the bytes that were passed to the
        // kernel.
        let gated = GatedIo::new(stream, gate.clone());
        let ((sender, running), generation) = match self.secured {
            None => {
                (client_connection::handshake_http1_with_limits(gated, RESPONSE_HEAD_LIMITS).await?, None)
            }
            Some(secured) => {
                let (stream, generation) = secured.connect(&route.address, gated, &[HTTP1]).await?;
                (
                    client_connection::handshake_http1_with_limits(stream, RESPONSE_HEAD_LIMITS).await?,
                    Some(generation),
                )
            }
        };
        Ok(UpstreamConnection::new(sender, running, gate, generation))
    }
}

/// Challenges the other side before anything of a client is written and before the peer secret is sent: another
/// process may have got the address. A gateway that accepts no more connections, or rejects our certificate, lets TCP
/// and TLS succeed on our side at first. Only an answer shows that it will read the next bytes.
async fn challenge(connection: &mut UpstreamConnection, route: &HolderRoute) -> io::Result<()> {
    let nonce = ChallengeNonce::new(&SystemRandomness);
    let question = header::challenge_request(&route.address, &nonce)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an address that no field can hold"))?;
    let answer = connection.send(question).await.map_err(|failed| io::Error::other(failed.why))?;
    let whole = answer.status() == StatusCode::NO_CONTENT && answer.body().is_end_stream();
    if !whole || !header::is_proven(answer.headers(), &route.secret, &nonce) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "who is there does not know the pass"));
    }
    drop(answer);
    // The exchange of the challenge has to be over, because from here on the gate counts bytes of requests.
    if connection.wait_settled().await { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// A connection during an exchange. It is closed on drop, unless it is returned to the pool.
pub struct PeerConnection {
    connection: Option<UpstreamConnection>,
    idle: Rc<PeerPool>,
    way: HolderRoute,
    /// How long the connection may be idle after this exchange.
    keep: Duration,
}

impl PeerConnection {
    /// Takes an idle connection, or opens one. If `fresh`, always opens a new one.
    pub async fn acquire<N: Network>(
        dialling: &PeerDialOptions<'_, N>,
        idle: &Rc<PeerPool>,
        route: &HolderRoute,
        fresh: bool,
    ) -> io::Result<Self> {
        let pooled = if fresh { None } else { idle.take(route) };
        let again = match pooled {
            Some(pooled) => dialling.reuse(pooled, route).await?,
            None => None,
        };
        let connection = match again {
            Some(connection) => connection,
            None => dialling.connect_verified(route).await?,
        };
        let keep = dialling.kept.min(IDLE_TIMEOUT);
        Ok(Self { connection: Some(connection), idle: idle.clone(), way: route.clone(), keep })
    }

    fn connection(&mut self) -> &mut UpstreamConnection {
        self.connection.as_mut().expect("taken only when the lend ends")
    }

    /// Sends a request, and begins to count its written bytes. The kernel may try to deliver them for at most
    /// `longest`.
    pub fn send(
        &mut self,
        request: Request<Body>,
        longest: Duration,
    ) -> impl Future<Output = Result<Response<Incoming>, SendRequestError>> + use<> {
        let connection = self.connection();
        connection.gate.arm(None);
        connection.gate.set_ack_timeout(longest);
        connection.send(request)
    }

    pub fn holder_route(&self) -> &HolderRoute {
        &self.way
    }

    /// True if the connection has carried an exchange before, so that the other side may have closed it while it was
    /// idle.
    pub fn is_reused(&mut self) -> bool {
        self.connection().reused
    }

    /// Stops writing. Returns true if no byte was written since [`Self::send`].
    pub fn abort(&mut self) -> bool {
        let gate = &self.connection().gate;
        gate.shut(GateShutReason::Abandoned);
        gate.written_bytes() == 0
    }

    /// Called after the last byte of the answer. Keeps the connection for another exchange, once this one is over in
    /// both directions.
    fn return_to_pool(mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        tokio::task::spawn_local(async move {
            if matches!(timeout(UPLOAD_GRACE, connection.wait_settled()).await, Ok(true)) {
                connection.reused = true;
                self.idle.insert(connection, &self.way, self.keep);
            }
        });
    }

    /// The body of an answer. At its end the connection returns to the pool.
    pub fn into_body(self, incoming: Incoming, trailers: TrailerPolicy, idle: Duration) -> Body {
        let lent = ReturnToPoolOnEnd(Some(self));
        Body::from_upstream(incoming, Version::HTTP_11, trailers, idle).with_observer(Box::new(lent))
    }
}

/// The connection of an answer, kept by its body.
struct ReturnToPoolOnEnd(Option<PeerConnection>);

impl BodyObserver for ReturnToPoolOnEnd {
    fn on_end(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.return_to_pool();
        }
    }
}
