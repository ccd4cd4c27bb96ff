//! One HTTP/1.1 connection, for one request after the other.

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
};

use super::{ClientResponse, TestRequest, dial::connect};

/// One connection to a gateway. Dropping it closes it.
pub struct Http1Client {
    requests: http1::SendRequest<Full<Bytes>>,
    address: SocketAddr,
    connection: JoinHandle<()>,
}

impl TestRequest {
    /// Sends the request on a connection of its own. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Returns an error if the connection broke before the response was complete.
    pub async fn send_to(&self, address: SocketAddr) -> Result<ClientResponse, String> {
        Http1Client::connect(address).await?.send(self).await
    }
}

impl Http1Client {
    /// Connects to a gateway.
    ///
    /// # Errors
    /// Returns an error if no process listens.
    pub async fn connect(address: SocketAddr) -> Result<Self, String> {
        Self::on_stream(connect(address).await?, address).await
    }

    /// Uses a stream that is already connected.
    ///
    /// # Errors
    /// Returns an error if the handshake fails.
    pub async fn on_stream(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
    ) -> Result<Self, String> {
        let (requests, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("handshake: {error}"))?;
        // The error is ignored here, because the task that waits for a response gets it, too.
        let connection = tokio::spawn(async { drop(connection.await) });
        Ok(Self { requests, address, connection })
    }

    /// Sends a request, and returns its response.
    ///
    /// # Errors
    /// Returns an error if the connection broke before the response was complete.
    pub async fn send(&mut self, ask: &TestRequest) -> Result<ClientResponse, String> {
        let broke = |error: hyper::Error| format!("{} {}: {error:?}", ask.method, ask.target);
        let mut request = Request::builder().method(ask.method).uri(&ask.target);
        if !ask.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in &ask.fields {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(ask.body.clone())).map_err(|error| error.to_string())?;
        let invoked = Instant::now();
        self.requests.ready().await.map_err(broke)?;
        let response = self.requests.send_request(request).await.map_err(broke)?;
        ClientResponse::read(response, invoked).await.map_err(broke)
    }
}

impl Drop for Http1Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
