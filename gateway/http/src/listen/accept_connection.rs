//! Handles a connection after it is accepted: determines its client, does the TLS handshake, and detects the
//! protocol.

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use fencegate_policies::{
    plan::{ListenerProtocols, ListenerSettings, ProxyProtocolMode},
    trusted_proxies::TrustedProxies,
};
use fencegate_process::log_limit::LogLimiter;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    certificates::{ListenerCertificates, TlsHandshakeResult, handshake},
    connection_limit::ConnectionSlot,
    detect::{DetectResult, DetectedProtocol, PrefixedIo, detect},
    handler::{HttpHandler, ListenerTimeLimit, RequestRejection},
    linger,
    metrics::ClientConnectionMetrics,
    proxy_protocol,
    serve_connection::{HttpConnectionServer, LAST_REQUEST, ListenerConnectionContext},
};
use crate::{
    buffered::MemoryBudget, client_quota::ClientQuotas, connection_info::ConnectionInfo,
    network::ResetOnClose,
};

/// The settings of a listener, as one plan has them.
pub(super) struct ListenerConfig {
    server: HttpConnectionServer,
    connections_per_client: Option<usize>,
    protocols: ListenerProtocols,
    certificates: Option<Arc<ListenerCertificates>>,
    proxy_protocol: ProxyProtocolMode,
    /// The proxies that may name the client.
    trusted: TrustedProxies,
    drain: CancellationToken,
    metrics: Rc<ClientConnectionMetrics>,
    /// Limit the log lines about connections that are not from trusted proxies, and about bad headers of trusted
    /// ones.
    untrusted_lines: LogLimiter,
    bad_header_lines: LogLimiter,
}

/// The interval in which at most one such connection is logged. All of them are counted.
const LINE_PERIOD: Duration = Duration::from_secs(60);

impl ListenerConfig {
    /// Returns a moment after the drain has begun, so that a client that connected just before can still send its
    /// first bytes.
    async fn wait_drain_begun(&self) {
        self.drain.cancelled().await;
        sleep(LAST_REQUEST).await;
    }

    pub(super) fn new(
        listener: &ListenerSettings,
        certificates: Option<Arc<ListenerCertificates>>,
        drain: CancellationToken,
        metrics: Rc<ClientConnectionMetrics>,
        budget: MemoryBudget,
        quotas: ClientQuotas,
    ) -> Self {
        Self {
            server: HttpConnectionServer::new(listener, budget, quotas),
            connections_per_client: listener.limits.connections_per_client,
            protocols: listener.protocols,
            certificates,
            proxy_protocol: listener.proxy_protocol,
            trusted: listener.trusted.clone(),
            drain,
            metrics,
            untrusted_lines: LogLimiter::new(LINE_PERIOD),
            bad_header_lines: LogLimiter::new(LINE_PERIOD),
        }
    }

    pub(super) fn certificates(&self) -> Option<Arc<ListenerCertificates>> {
        self.certificates.clone()
    }

    /// The most connections of one client.
    pub(super) fn connections_per_client(&self) -> Option<usize> {
        self.connections_per_client
    }

    /// True if this peer is a trusted proxy. The connections of a proxy belong to many clients, so closing one could
    /// hit a client that has sent no more than its share, and may be in the middle of a POST.
    pub(super) fn is_trusted_proxy(&self, peer: &ConnectionInfo) -> bool {
        self.trusted.is_proxy(peer.address.ip())
    }

    pub(super) async fn serve_connection<I>(
        &self,
        stream: I,
        peer: ConnectionInfo,
        slot: &ConnectionSlot,
        handler: &Rc<dyn HttpHandler>,
    ) where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        match self.proxy_protocol {
            ProxyProtocolMode::Off => self.serve_client(stream, peer, slot, handler).await,
            // The futures are boxed, so that connections without a PROXY header are no larger for them.
            ProxyProtocolMode::Require => {
                if let Some((stream, peer)) = Box::pin(self.read_proxy_header(stream, peer)).await {
                    Box::pin(self.serve_client(stream, peer, slot, handler)).await;
                }
            }
        }
    }

    /// Reads the address of the client from the PROXY header. `None` if the connection has to be closed without an
    /// answer.
    async fn read_proxy_header<I: AsyncRead + Unpin>(
        &self,
        stream: I,
        peer: ConnectionInfo,
    ) -> Option<(PrefixedIo<I>, ConnectionInfo)> {
        if !self.trusted.contains(peer.address.ip()) {
            self.metrics.record_proxy_header("untrusted");
            if let Some(left_out) = self.untrusted_lines.admit() {
                warn!(
                    peer = %peer.address,
                    left_out,
                    "the connection was closed: its peer is not one of `trusted_peers`, so its PROXY header does \
                     not count"
                );
            }
            return None;
        }
        let named = tokio::select! {
            biased;
            named = timeout(self.server.timeouts.detect, proxy_protocol::read_header(stream)) => named,
            () = self.drain.cancelled() => return None,
        };
        let (result, known) = match named {
            Ok(Ok((Some(client), stream))) => ("client", Some((stream, peer.with_client_address(client)))),
            Ok(Ok((None, stream))) => ("local", Some((stream, peer))),
            Ok(Err(bad)) => {
                // A load balancer that checks whether the port is open connects and leaves without a byte, which is
                // not logged.
                if bad.has_sent_bytes()
                    && let Some(left_out) = self.bad_header_lines.admit()
                {
                    warn!(peer = %peer.address, %bad, left_out, "the connection was closed, because no PROXY header names its client");
                } else {
                    debug!(peer = %peer.address, %bad, "the connection was closed, because no PROXY header names its client");
                }
                (bad.as_str(), None)
            }
            Err(_elapsed) => {
                self.metrics.record_timeout(ListenerTimeLimit::Detect);
                ("late", None)
            }
        };
        self.metrics.record_proxy_header(result);
        known
    }

    /// Serves a connection whose client is known: with TLS, or in plain text.
    async fn serve_client<I>(
        &self,
        stream: I,
        peer: ConnectionInfo,
        slot: &ConnectionSlot,
        handler: &Rc<dyn HttpHandler>,
    ) where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        match &self.certificates {
            None => self.detect_and_serve(stream, peer, slot, handler).await,
            Some(certificates) => Box::pin(self.serve_tls(certificates, stream, peer, slot, handler)).await,
        }
    }

    /// Does the TLS handshake, and serves the connection.
    async fn serve_tls<I>(
        &self,
        certificates: &Arc<ListenerCertificates>,
        stream: I,
        peer: ConnectionInfo,
        slot: &ConnectionSlot,
        handler: &Rc<dyn HttpHandler>,
    ) where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        let shaken = tokio::select! {
            biased;
            shaken = timeout(self.server.timeouts.tls_handshake, handshake(certificates, stream)) => shaken,
            // The client has not sent a request yet, so the connection can be closed.
            () = self.wait_drain_begun() => return,
        };
        match shaken {
            Ok(Ok(TlsHandshakeResult::Secured(stream, handshake, agreed))) => {
                self.metrics.record_handshake(true);
                let peer = peer.with_tls(handshake);
                match agreed {
                    Some(protocol) => {
                        self.serve(protocol, PrefixedIo::new(stream), peer, slot, handler).await
                    }
                    None => self.detect_and_serve(stream, peer, slot, handler).await,
                }
            }
            Ok(Ok(TlsHandshakeResult::Plain(stream))) => {
                let reason = "plain HTTP, where TLS is expected";
                reject_protocol(stream, reason, &**handler).await;
            }
            Ok(Ok(TlsHandshakeResult::Failed(error, stream))) => {
                self.metrics.record_handshake(false);
                debug!(peer = %peer.address, %error, "handshake failed");
                // In TLS 1.3 the client may send a request before its certificate is checked. If the connection were
                // closed with unread bytes, it would be reset, and the alert lost. So the bytes are read for a
                // moment.
                linger::write_and_linger(stream, Bytes::new()).await;
            }
            Ok(Ok(TlsHandshakeResult::Closed)) => {}
            Ok(Err(error)) => {
                self.metrics.record_handshake(false);
                debug!(peer = %peer.address, %error, "handshake failed");
            }
            Err(_elapsed) => self.metrics.record_timeout(ListenerTimeLimit::TlsHandshake),
        }
    }

    /// Detects the protocol by the first bytes, and serves the connection in it.
    async fn detect_and_serve<I>(
        &self,
        stream: I,
        peer: ConnectionInfo,
        slot: &ConnectionSlot,
        handler: &Rc<dyn HttpHandler>,
    ) where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        let detected = tokio::select! {
            biased;
            detected = timeout(self.server.timeouts.detect, detect(stream, self.protocols)) => detected,
            // The client has not sent a request yet, so the connection can be closed.
            () = self.wait_drain_begun() => return,
        };
        match detected {
            Ok(Ok(DetectResult::Detected(protocol, stream))) => {
                self.serve(protocol, stream, peer, slot, handler).await
            }
            Ok(Ok(DetectResult::Foreign(stream, reason))) => {
                Box::pin(reject_protocol(stream, reason, &**handler)).await
            }
            Ok(Ok(DetectResult::Gone)) => {}
            Ok(Err(error)) => debug!(peer = %peer.address, %error, "client connection ended"),
            Err(_elapsed) => self.metrics.record_timeout(ListenerTimeLimit::Detect),
        }
    }

    async fn serve<I>(
        &self,
        protocol: DetectedProtocol,
        stream: PrefixedIo<I>,
        peer: ConnectionInfo,
        slot: &ConnectionSlot,
        handler: &Rc<dyn HttpHandler>,
    ) where
        I: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        let address = peer.address;
        let context = ListenerConnectionContext { handler, metrics: &self.metrics, drain: &self.drain };
        if let Err(error) = self.server.serve(protocol, stream, peer, slot, context).await {
            debug!(peer = %address, %error, "client connection ended");
        }
    }
}

/// Answers a client that speaks another protocol, and names the reason.
async fn reject_protocol<I: AsyncRead + AsyncWrite + Unpin>(
    stream: I,
    reason: &'static str,
    handler: &dyn HttpHandler,
) {
    let words =
        linger::encode_http1_response(&handler.reject(RequestRejection::Malformed(reason), Duration::ZERO));
    linger::write_and_linger(stream, words).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::socket_stream::SocketStream;

    type FiveArgFn<A, B, C, D, E, F> = fn(A, B, C, D, E) -> F;

    fn future_size<A, B, C, D, E, F>(_: FiveArgFn<A, B, C, D, E, F>) -> usize {
        size_of::<F>()
    }

    /// The future of a connection stays small, because it exists for as long as the connection is open. The parts
    /// that depend on the protocol are boxed.
    #[test]
    fn connection_future_stays_small() {
        let size = future_size(
            ListenerConfig::serve_connection::<SocketStream>
                as FiveArgFn<&'static _, _, _, &'static _, &'static Rc<dyn HttpHandler>, _>,
        );
        assert!(size <= 1664, "{size}");
    }
}
