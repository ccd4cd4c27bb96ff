//! One HTTP/2 connection, by prior knowledge, for any number of requests at once.

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
};

use super::{ClientResponse, TestRequest, dial::connect};

/// One connection. Dropping it closes it.
pub struct Http2Client {
    requests: http2::SendRequest<Full<Bytes>>,
    address: SocketAddr,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Http2Client {
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
    /// Returns an error if the peer does not speak HTTP/2.
    pub async fn on_stream(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
    ) -> Result<Self, String> {
        let (requests, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("handshake: {error}"))?;
        Ok(Self { requests, address, connection: tokio::spawn(connection) })
    }

    /// Sends a request, and returns its response. A target that begins with `/` goes to the address of the
    /// connection. Dropping the future resets the stream.
    ///
    /// # Errors
    /// Returns an error if the stream or its connection broke before the response was complete.
    pub fn send(&self, ask: &TestRequest) -> impl Future<Output = Result<ClientResponse, String>> + use<> {
        let what = format!("{} {}", ask.method, ask.target);
        let target = match ask.target.strip_prefix('/') {
            Some(_) => format!("http://{}{}", self.address, ask.target),
            None => ask.target.clone(),
        };
        let mut request = Request::builder().method(ask.method).uri(target);
        for (name, value) in &ask.fields {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(ask.body.clone())).map_err(|error| error.to_string());
        let mut requests = self.requests.clone();
        async move {
            let broke = |error: hyper::Error| format!("{what}: {error:?}");
            let request = request?;
            let invoked = Instant::now();
            requests.ready().await.map_err(broke)?;
            let response = requests.send_request(request).await.map_err(broke)?;
            ClientResponse::read(response, invoked).await.map_err(broke)
        }
    }

    /// Waits until the other side has ended the connection in order.
    ///
    /// # Errors
    /// Returns an error if the connection broke.
    ///
    /// # Panics
    /// Never: the connection's task does not panic.
    pub async fn wait_closed(mut self) -> Result<(), String> {
        (&mut self.connection).await.expect("no panic").map_err(|error| format!("{error:?}"))
    }
}

impl Drop for Http2Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
