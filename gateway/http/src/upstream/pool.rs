//! Connections to upstreams. Each worker has a pool of its own, so that a request with an idle connection waits for no
//! other worker.

mod identity;
mod probe;

use std::{io, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::{self, UpstreamProtocol};
use fencegate_process::clock::SharedClock;
use futures_util::{FutureExt, future::select_all};
use hyper::http::uri::Scheme;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::debug;

use super::{
    address::Address,
    checkout::Checkout,
    client_connection::{self, HTTP1, HTTP2, RequestSender},
    connection::Connection,
    endpoint::{ConnectionPermit, Endpoint, EndpointState},
    endpoint_set::{EndpointCursor, EndpointSet},
    gate::{Gate, Gated},
    identity_check::{BoxError, IdentityCheck, IdentityError},
    idle::IdlePool,
    metrics::WaitResult,
    resolver::dial,
};
use crate::network::Network;
use crate::upstream::pooled_connection::PooledConnection;

/// The connections of one worker.
#[derive(Clone)]
pub struct Pool<N> {
    network: N,
    clock: SharedClock,
    /// The introductions that some endpoints need.
    identity_check: Arc<dyn IdentityCheck>,
    idle: Rc<IdlePool>,
}

/// Why there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("connect to {endpoint}: {source}")]
    Io { endpoint: Arc<str>, source: io::Error },
    /// The process at the endpoint must not be trusted.
    #[error("{endpoint}: {why}")]
    Distrusted { endpoint: Arc<str>, why: BoxError },
    #[error("every endpoint has as many connections as it may have")]
    LimitReached,
    #[error("nothing could be sent to any endpoint")]
    Exhausted,
}

/// The event that ended a request's wait.
enum PoolEvent {
    Pooled(Box<PooledConnection>),
    Place(Arc<Endpoint>, ConnectionPermit),
}

impl<N: Network> Pool<N> {
    pub fn new(network: N, clock: SharedClock, introductions: Arc<dyn IdentityCheck>) -> Self {
        Self { network, clock, identity_check: introductions, idle: Rc::default() }
    }

    /// A connection that is ready for an exchange: an idle one, or a new one to the first endpoint of the tour that
    /// answers. If these have as many connections as allowed, it waits for one that is given back.
    ///
    /// # Cancellation
    /// Dropping the future gives up the place in the queue; a connection that was being made is closed.
    pub async fn checkout(&self, tour: &mut EndpointCursor<'_>) -> Result<Checkout, ConnectError> {
        match self.try_idle(tour) {
            Some(pooled) => Ok(self.new_checkout(pooled, tour)),
            // Boxed, because most requests find an idle connection, and should not carry the size of this future.
            None => self.checkout_slow(tour).boxed_local().await,
        }
    }

    /// An idle connection to the tour's first endpoint. If introductions are needed, this works only for an upstream
    /// with one address, because all others have to be asked first.
    fn try_idle(&self, tour: &EndpointCursor<'_>) -> Option<Box<PooledConnection>> {
        let upstream = &tour.fleet.upstream;
        if tour.fresh {
            return None;
        }
        match self.identity_check.is_required(upstream) {
            false => self.idle.take(tour.current()?),
            true if tour.fleet.is_one_address() => self.take_idle(upstream, tour.current()?),
            true => None,
        }
    }

    async fn checkout_slow(&self, tour: &mut EndpointCursor<'_>) -> Result<Checkout, ConnectError> {
        let fleet = tour.fleet;
        let upstream = &fleet.upstream;
        self.check_all(fleet).await?;
        let (mut failed, mut full) = (ConnectError::Exhausted, Vec::new());
        while let Some(endpoint) = tour.current() {
            // Silent ones come last. A request rather waits for a connection to one that answers.
            if !full.is_empty() && endpoint.state() == EndpointState::Silent {
                tour.advance();
                continue;
            }
            if !tour.fresh
                && let Some(pooled) = self.take_idle(upstream, endpoint)
            {
                return Ok(self.new_checkout(pooled, tour));
            }
            match endpoint.try_acquire() {
                None => full.push(endpoint.clone()),
                Some(place) => match self.open_connection(fleet, endpoint, place).await {
                    Ok(pooled) => return Ok(self.new_checkout(pooled, tour)),
                    Err(error) => failed = error,
                },
            }
            tour.advance();
        }
        if full.is_empty() {
            return Err(failed);
        }
        let counted = fleet.metrics.count_waiting(&upstream.name);
        let waited = timeout(upstream.connect_timeout, self.wait_freed(&full)).await;
        drop(counted);
        let result = if waited.is_ok() { WaitResult::Connected } else { WaitResult::Failed };
        fleet.metrics.record_wait(&upstream.name, result);
        match waited.map_err(|_| ConnectError::LimitReached)? {
            PoolEvent::Pooled(pooled) if !self.is_trusted(upstream, &pooled) => Err(ConnectError::Exhausted),
            PoolEvent::Pooled(pooled) => {
                tour.pin_to(&pooled.endpoint);
                Ok(self.new_checkout(pooled, tour))
            }
            PoolEvent::Place(endpoint, place) => {
                tour.pin_to(&endpoint);
                let reached = self.open_connection(fleet, &endpoint, place).await;
                reached.map(|pooled| self.new_checkout(pooled, tour))
            }
        }
    }

    /// An idle connection whose process is still the one that answers at its address.
    fn take_idle(&self, upstream: &plan::Upstream, endpoint: &Endpoint) -> Option<Box<PooledConnection>> {
        std::iter::from_fn(|| self.idle.take(endpoint)).find(|pooled| self.is_trusted(upstream, pooled))
    }

    fn is_trusted(&self, upstream: &plan::Upstream, pooled: &PooledConnection) -> bool {
        let is_believed = |process| self.identity_check.is_trusted(upstream, &pooled.address, process);
        pooled.process.as_ref().is_none_or(is_believed)
    }

    fn new_checkout(&self, pooled: Box<PooledConnection>, tour: &EndpointCursor<'_>) -> Checkout {
        Checkout::new(pooled, tour.fleet.clone(), self.idle.clone())
    }

    /// Waits until a request of this worker gives a connection back, or a new one may be made.
    async fn wait_freed(&self, endpoints: &[Arc<Endpoint>]) -> PoolEvent {
        let given_back = self.idle.wait(endpoints);
        let places = endpoints.iter().map(|endpoint| {
            let place = endpoint.clone().acquire();
            async move { (endpoint.clone(), place.await) }.boxed_local()
        });
        tokio::select! {
            pooled = given_back => PoolEvent::Pooled(pooled),
            ((endpoint, place), ..) = select_all(places) => PoolEvent::Place(endpoint, place),
        }
    }

    /// Makes a new connection, if there is a place for it.
    async fn open_connection(
        &self,
        fleet: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
        place: ConnectionPermit,
    ) -> Result<Box<PooledConnection>, ConnectError> {
        let mut made = self.connect(fleet, endpoint, None, place).await;
        if matches!(made, Err(IdentityError::Contradicted(_))) {
            self.check_all(fleet).await?;
            if let Some(pooled) = self.take_idle(&fleet.upstream, endpoint) {
                return Ok(pooled);
            }
            let place = timeout(fleet.upstream.connect_timeout, endpoint.clone().acquire()).await;
            made = self.connect(fleet, endpoint, None, place.map_err(|_| ConnectError::LimitReached)?).await;
        }
        let name = endpoint.name.clone();
        made.map_err(|failed| match failed {
            IdentityError::Io(source) => {
                debug!(endpoint = %name, error = %source, "endpoint not reached");
                fleet.record_failure(endpoint);
                ConnectError::Io { endpoint: name, source }
            }
            IdentityError::UnknownProcess(why)
            | IdentityError::Contradicted(why)
            | IdentityError::Distrusted(why) => ConnectError::Distrusted { endpoint: name, why },
        })
    }

    /// `only`: connect to this address and to no other of the endpoint.
    async fn connect(
        &self,
        fleet: &EndpointSet,
        endpoint: &Arc<Endpoint>,
        only: Option<Arc<Address>>,
        place: ConnectionPermit,
    ) -> Result<Box<PooledConnection>, IdentityError> {
        let upstream = &fleet.upstream;
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let limit = upstream.connect_timeout;
        let by = Instant::now() + limit;
        let addresses = match only {
            Some(only) => vec![only],
            None => timeout_at(by, endpoint.addresses.rotated()).await.map_err(late)?,
        };
        let (attempt, left) =
            (self.identity_check.start_attempt(), by.saturating_duration_since(Instant::now()));
        let unreached = |address: &Arc<Address>| {
            self.avoid(fleet, address);
            self.identity_check.record_failure(upstream, address, attempt);
        };
        let (address, stream) = dial(&self.network, &addresses, left, unreached).await?;
        let made = async {
            let speaking = timeout_at(by, self.handshake(fleet, endpoint, address.clone(), stream, place));
            let mut pooled = speaking.await.map_err(late)??;
            // The introduction comes before all other bytes.
            if self.identity_check.is_required(upstream) {
                let introduced = self.identity_check.check_identity(&mut pooled, upstream, &self.clock);
                // Nothing was sent. Another process need not be waited for as long as the last one.
                let limit = if fleet.has_another(endpoint) { limit.min(INTRODUCED) } else { limit };
                pooled.process = Some(timeout(limit, introduced).await.map_err(late)??);
            }
            Ok::<_, IdentityError>(Box::new(pooled))
        };
        made.await.inspect_err(|failed| {
            if matches!(failed, IdentityError::Io(_)) {
                self.avoid(fleet, &address);
            }
            if matches!(failed, IdentityError::Io(_) | IdentityError::UnknownProcess(_)) {
                self.identity_check.record_failure(upstream, &address, attempt);
            }
        })
    }

    /// New requests go to other processes for a while, if any of them can do the same.
    fn avoid(&self, fleet: &EndpointSet, address: &Address) {
        if self.identity_check.is_required(&fleet.upstream) && !fleet.is_one_address() {
            address.liveness.avoid();
        }
    }

    async fn handshake(
        &self,
        fleet: &EndpointSet,
        endpoint: &Arc<Endpoint>,
        address: Arc<Address>,
        stream: N::Stream,
        place: ConnectionPermit,
    ) -> io::Result<PooledConnection> {
        let gate = Rc::new(Gate::new(self.clock.clone()));
        // The gate is directly above the socket and below TLS, because encrypted bytes may be written much later.
        let gated = Gated::new(stream, gate.clone());
        let (protocol, fields) = (fleet.upstream.protocol, fleet.upstream.response_fields);
        let (speaks, generation) = match &fleet.tls {
            None if protocol == UpstreamProtocol::Http2 => {
                (client_connection::http2(gated, Scheme::HTTP).await?, None)
            }
            None => (client_connection::http1(gated, fields).await?, None),
            Some(secured) => {
                let (stream, generation) =
                    secured.connect(&endpoint.name, gated, alpn_protocols(protocol)).await?;
                let speaks = match stream.get_ref().1.alpn_protocol() {
                    Some(chosen) if chosen == HTTP2.as_bytes() => {
                        client_connection::http2(stream, Scheme::HTTPS).await?
                    }
                    _ if protocol == UpstreamProtocol::Http2 => {
                        return Err(io::Error::other("it does not choose HTTP/2"));
                    }
                    _ => client_connection::http1(stream, fields).await?,
                };
                (speaks, Some(generation))
            }
        };
        if let RequestSender::Http2(_, frames, _) = &speaks.0 {
            gate.observe_http2(frames);
        }
        let (connection, endpoint) = (Connection::new(speaks, gate, generation), endpoint.clone());
        let (process, handed_on, _place) = (None, 0, place);
        Ok(PooledConnection { connection, endpoint, address, process, handed_on, _place })
    }

    /// Sweeps the idle connections, now and then and whenever a request waits for a connection.
    pub async fn run_sweeper(&self, mut bell: watch::Receiver<()>) {
        loop {
            tokio::select! {
                () = sleep(SWEEP) => {}
                // This cannot fail, because every endpoint has the sender.
                Ok(()) = bell.changed() => {}
            }
            self.idle.sweep();
        }
    }
}

/// The protocols that we offer to an endpoint, in the order of preference.
pub fn alpn_protocols(protocol: UpstreamProtocol) -> &'static [&'static str] {
    match protocol {
        UpstreamProtocol::Http1 => &[HTTP1],
        UpstreamProtocol::Http2 => &[HTTP2],
        UpstreamProtocol::Auto => &[HTTP2, HTTP1],
    }
}

/// How long an introduction may take while another endpoint can be asked.
const INTRODUCED: Duration = Duration::from_secs(1);

/// How often idle connections are swept.
const SWEEP: Duration = Duration::from_secs(5);
