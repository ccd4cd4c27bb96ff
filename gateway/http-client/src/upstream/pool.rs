//! Connections to upstreams. Each worker has a pool of its own, so that a request with an idle connection waits for no
//! other worker.

mod identity;
mod probe;

use std::{io, rc::Rc, sync::Arc, time::Duration};

use fencegate_http::network::Network;
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
    address::ResolvedEndpoint,
    checkout::CheckedOutConnection,
    client_connection::{self, HTTP1, HTTP2, RequestSender},
    connection::UpstreamConnection,
    endpoint::{ConnectionPermit, Endpoint, EndpointState},
    endpoint_set::{EndpointCursor, EndpointSet},
    gate::{GatedIo, WriteGate},
    identity_check::{BoxError, EndpointIdentityVerifier, IdentityCheckError},
    idle::IdlePool,
    metrics::PoolWaitResult,
    resolver::dial,
};
use crate::upstream::pooled_connection::PooledConnection;

/// The connections of one worker to all upstreams.
#[derive(Clone)]
pub struct ConnectionPool<N> {
    network: N,
    clock: SharedClock,
    /// The identity checks that some endpoints need.
    identity_check: Arc<dyn EndpointIdentityVerifier>,
    idle: Rc<IdlePool>,
}

/// The reason for which there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot connect to {endpoint}: {source}")]
    Io { endpoint: Arc<str>, source: io::Error },
    /// The process at the endpoint must not be trusted.
    #[error("{endpoint}: {why}")]
    Distrusted { endpoint: Arc<str>, why: BoxError },
    #[error("every endpoint has its largest number of connections")]
    LimitReached,
    #[error("the request could not be sent to any endpoint")]
    Exhausted,
}

/// The event that ended the wait of a request for a connection.
enum ConnectionOrPermit {
    Pooled(Box<PooledConnection>),
    Place(Arc<Endpoint>, ConnectionPermit),
}

impl<N: Network> ConnectionPool<N> {
    pub fn new(network: N, clock: SharedClock, identity_check: Arc<dyn EndpointIdentityVerifier>) -> Self {
        Self { network, clock, identity_check, idle: Rc::default() }
    }

    /// Returns a connection that is ready for an exchange: an idle one, or a new one to the first endpoint of the
    /// cursor that answers. If all of these endpoints have as many connections as allowed, it waits for one that is
    /// returned.
    ///
    /// # Cancellation
    /// Dropping the future gives up the position in the queue; a connection that was being made is closed.
    pub async fn checkout(
        &self,
        cursor: &mut EndpointCursor<'_>,
    ) -> Result<CheckedOutConnection, ConnectError> {
        match self.try_idle(cursor) {
            Some(pooled) => Ok(self.new_checkout(pooled, cursor)),
            // The future is boxed, because most requests find an idle connection, and their futures should not contain
            // it.
            None => self.checkout_slow(cursor).boxed_local().await,
        }
    }

    /// Takes an idle connection to the cursor's first endpoint. If identity checks are needed, this works only for an
    /// upstream with one address: with several, all have to be checked before anything is sent.
    fn try_idle(&self, cursor: &EndpointCursor<'_>) -> Option<Box<PooledConnection>> {
        let upstream = &cursor.fleet.upstream;
        if cursor.fresh {
            return None;
        }
        match self.identity_check.is_identity_check_required(upstream) {
            false => self.idle.take(cursor.current()?),
            true if cursor.fleet.is_one_address() => self.take_idle(upstream, cursor.current()?),
            true => None,
        }
    }

    async fn checkout_slow(
        &self,
        cursor: &mut EndpointCursor<'_>,
    ) -> Result<CheckedOutConnection, ConnectError> {
        let endpoint_set = cursor.fleet;
        let upstream = &endpoint_set.upstream;
        self.check_all_identities(endpoint_set).await?;
        let mut failed = ConnectError::Exhausted;
        let mut full = Vec::new();
        while let Some(endpoint) = cursor.current() {
            // Silent endpoints are skipped here: it is better to wait for a connection to one that answers.
            if !full.is_empty() && endpoint.state() == EndpointState::Silent {
                cursor.advance();
                continue;
            }
            if !cursor.fresh
                && let Some(pooled) = self.take_idle(upstream, endpoint)
            {
                return Ok(self.new_checkout(pooled, cursor));
            }
            match endpoint.try_acquire() {
                None => full.push(endpoint.clone()),
                Some(permit) => match self.open_connection(endpoint_set, endpoint, permit).await {
                    Ok(pooled) => return Ok(self.new_checkout(pooled, cursor)),
                    Err(error) => failed = error,
                },
            }
            cursor.advance();
        }
        if full.is_empty() {
            return Err(failed);
        }
        let counted = endpoint_set.metrics.count_waiting(&upstream.name);
        let waited = timeout(upstream.connect_timeout, self.wait_freed(&full)).await;
        drop(counted);
        let result = if waited.is_ok() { PoolWaitResult::Connected } else { PoolWaitResult::Failed };
        endpoint_set.metrics.record_wait(&upstream.name, result);
        match waited.map_err(|_| ConnectError::LimitReached)? {
            ConnectionOrPermit::Pooled(pooled) if !self.is_trusted(upstream, &pooled) => {
                Err(ConnectError::Exhausted)
            }
            ConnectionOrPermit::Pooled(pooled) => {
                cursor.pin_to(&pooled.endpoint);
                Ok(self.new_checkout(pooled, cursor))
            }
            ConnectionOrPermit::Place(endpoint, permit) => {
                cursor.pin_to(&endpoint);
                let reached = self.open_connection(endpoint_set, &endpoint, permit).await;
                reached.map(|pooled| self.new_checkout(pooled, cursor))
            }
        }
    }

    /// Takes an idle connection whose process is still the one that answers at its address.
    fn take_idle(&self, upstream: &plan::Upstream, endpoint: &Endpoint) -> Option<Box<PooledConnection>> {
        std::iter::from_fn(|| self.idle.take(endpoint)).find(|pooled| self.is_trusted(upstream, pooled))
    }

    fn is_trusted(&self, upstream: &plan::Upstream, pooled: &PooledConnection) -> bool {
        let is_believed = |process| self.identity_check.is_trusted(upstream, &pooled.address, process);
        pooled.process.as_ref().is_none_or(is_believed)
    }

    fn new_checkout(
        &self,
        pooled: Box<PooledConnection>,
        cursor: &EndpointCursor<'_>,
    ) -> CheckedOutConnection {
        CheckedOutConnection::new(pooled, cursor.fleet.clone(), self.idle.clone())
    }

    /// Waits until a request of this worker returns a connection, or until there is a permit for a new one.
    async fn wait_freed(&self, endpoints: &[Arc<Endpoint>]) -> ConnectionOrPermit {
        let given_back = self.idle.wait(endpoints);
        let permits = endpoints.iter().map(|endpoint| {
            let permit = endpoint.clone().acquire();
            async move { (endpoint.clone(), permit.await) }.boxed_local()
        });
        tokio::select! {
            pooled = given_back => ConnectionOrPermit::Pooled(pooled),
            ((endpoint, permit), ..) = select_all(permits) => ConnectionOrPermit::Place(endpoint, permit),
        }
    }

    /// Makes a new connection, if there is a permit for it.
    async fn open_connection(
        &self,
        endpoint_set: &Arc<EndpointSet>,
        endpoint: &Arc<Endpoint>,
        permit: ConnectionPermit,
    ) -> Result<Box<PooledConnection>, ConnectError> {
        let mut made = self.connect(endpoint_set, endpoint, None, permit).await;
        if matches!(made, Err(IdentityCheckError::Contradicted(_))) {
            self.check_all_identities(endpoint_set).await?;
            if let Some(pooled) = self.take_idle(&endpoint_set.upstream, endpoint) {
                return Ok(pooled);
            }
            let permit = timeout(endpoint_set.upstream.connect_timeout, endpoint.clone().acquire()).await;
            made = self
                .connect(endpoint_set, endpoint, None, permit.map_err(|_| ConnectError::LimitReached)?)
                .await;
        }
        let name = endpoint.name.clone();
        made.map_err(|failed| match failed {
            IdentityCheckError::Io(source) => {
                debug!(endpoint = %name, error = %source, "endpoint not reached");
                endpoint_set.record_failure(endpoint);
                ConnectError::Io { endpoint: name, source }
            }
            IdentityCheckError::UnknownProcess(why)
            | IdentityCheckError::Contradicted(why)
            | IdentityCheckError::Distrusted(why) => ConnectError::Distrusted { endpoint: name, why },
        })
    }

    /// Connects to an endpoint. With `only` it connects to this address and to no other of the endpoint.
    async fn connect(
        &self,
        endpoint_set: &EndpointSet,
        endpoint: &Arc<Endpoint>,
        only: Option<Arc<ResolvedEndpoint>>,
        permit: ConnectionPermit,
    ) -> Result<Box<PooledConnection>, IdentityCheckError> {
        let upstream = &endpoint_set.upstream;
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let limit = upstream.connect_timeout;
        let by = Instant::now() + limit;
        let addresses = match only {
            Some(only) => vec![only],
            None => timeout_at(by, endpoint.addresses.rotated_addresses()).await.map_err(late)?,
        };
        let attempt = self.identity_check.start_attempt();
        let left = by.saturating_duration_since(Instant::now());
        let unreached = |address: &Arc<ResolvedEndpoint>| {
            self.avoid(endpoint_set, address);
            self.identity_check.record_failure(upstream, address, attempt);
        };
        let (address, stream) = dial(&self.network, &addresses, left, unreached).await?;
        let made = async {
            let speaking =
                timeout_at(by, self.handshake(endpoint_set, endpoint, address.clone(), stream, permit));
            let mut pooled = speaking.await.map_err(late)??;
            // The identity check precedes all other bytes.
            if self.identity_check.is_identity_check_required(upstream) {
                let introduced = self.identity_check.check_identity(&mut pooled, upstream, &self.clock);
                // Nothing of the request was sent. If another endpoint can be tried, the check gets less time than for
                // the last one.
                let limit = if endpoint_set.has_other_usable_endpoint(endpoint) {
                    limit.min(INTRODUCED)
                } else {
                    limit
                };
                pooled.process = Some(timeout(limit, introduced).await.map_err(late)??);
            }
            Ok::<_, IdentityCheckError>(Box::new(pooled))
        };
        made.await.inspect_err(|failed| {
            if matches!(failed, IdentityCheckError::Io(_)) {
                self.avoid(endpoint_set, &address);
            }
            if matches!(failed, IdentityCheckError::Io(_) | IdentityCheckError::UnknownProcess(_)) {
                self.identity_check.record_failure(upstream, &address, attempt);
            }
        })
    }

    /// Makes new requests go to other processes for a while, if there are any.
    fn avoid(&self, endpoint_set: &EndpointSet, address: &ResolvedEndpoint) {
        if self.identity_check.is_identity_check_required(&endpoint_set.upstream)
            && !endpoint_set.is_one_address()
        {
            address.liveness.avoid_address();
        }
    }

    async fn handshake(
        &self,
        endpoint_set: &EndpointSet,
        endpoint: &Arc<Endpoint>,
        address: Arc<ResolvedEndpoint>,
        stream: N::Stream,
        permit: ConnectionPermit,
    ) -> io::Result<PooledConnection> {
        let gate = Rc::new(WriteGate::new(self.clock.clone()));
        // The gate is directly above the socket and below TLS, because bytes may be written long after they were
        // encrypted.
        let gated = GatedIo::new(stream, gate.clone());
        let protocol = endpoint_set.upstream.protocol;
        let fields = endpoint_set.upstream.response_fields;
        let ((sender, running), generation) = match &endpoint_set.tls {
            None if protocol == UpstreamProtocol::Http2 => {
                (client_connection::handshake_http2(gated, Scheme::HTTP).await?, None)
            }
            None => (client_connection::handshake_http1(gated, fields).await?, None),
            Some(secured) => {
                let (stream, generation) =
                    secured.connect(&endpoint.name, gated, alpn_protocols(protocol)).await?;
                let speaks = match stream.get_ref().1.alpn_protocol() {
                    Some(chosen) if chosen == HTTP2.as_bytes() => {
                        client_connection::handshake_http2(stream, Scheme::HTTPS).await?
                    }
                    _ if protocol == UpstreamProtocol::Http2 => {
                        return Err(io::Error::other("it does not choose HTTP/2"));
                    }
                    _ => client_connection::handshake_http1(stream, fields).await?,
                };
                (speaks, Some(generation))
            }
        };
        if let RequestSender::Http2(_, frames, _) = &sender {
            gate.observe_http2(frames);
        }
        let connection = UpstreamConnection::new(sender, running, gate, generation);
        let endpoint = endpoint.clone();
        let process = None;
        let handed_on = 0;
        let _place = permit;
        Ok(PooledConnection { connection, endpoint, address, process, handed_on, _place })
    }

    /// Sweeps the idle connections, periodically and whenever a request waits for a connection.
    pub async fn run_sweeper(&self, mut bell: watch::Receiver<()>) {
        loop {
            tokio::select! {
                () = sleep(SWEEP) => {}
                // The sender is in every endpoint, so this cannot fail.
                Ok(()) = bell.changed() => {}
            }
            self.idle.sweep();
        }
    }
}

/// The protocols that are offered to an endpoint, in the order of preference.
pub fn alpn_protocols(protocol: UpstreamProtocol) -> &'static [&'static str] {
    match protocol {
        UpstreamProtocol::Http1 => &[HTTP1],
        UpstreamProtocol::Http2 => &[HTTP2],
        UpstreamProtocol::Auto => &[HTTP2, HTTP1],
    }
}

/// The longest identity check while another endpoint can be tried.
const INTRODUCED: Duration = Duration::from_secs(1);

/// The interval in which idle connections are swept.
const SWEEP: Duration = Duration::from_secs(5);
