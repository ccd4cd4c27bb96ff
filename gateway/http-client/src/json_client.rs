//! A client that keeps one HTTP/1.1 connection and exchanges JSON. The verbs for operators use it, and the clients of
//! the demo.

pub mod streamed_response;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, header::HeaderValue};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::upstream::tls::UpstreamTls;

/// The connection is opened when it is needed, and again after it broke.
pub struct JsonClient {
    address: SocketAddr,
    /// The host name of the server.
    host: String,
    bearer: Option<HeaderValue>,
    tls: Option<Arc<UpstreamTls>>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// A complete response.
#[derive(Debug)]
pub struct JsonResponse {
    pub status: StatusCode,
    /// The word of `Fencing-Outcome`, without its parameters.
    pub outcome: Option<String>,
    pub token: Option<String>,
    /// A JSON text if the response is no JSON.
    pub body: Value,
}

/// The reason for which there is no response.
#[derive(Debug, thiserror::Error)]
pub enum JsonClientError {
    /// Nothing was sent.
    #[error("connect")]
    Connect(#[source] io::Error),
    #[error("speak TLS")]
    Tls(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl JsonClient {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), bearer: None, tls: None, connection: None }
    }

    /// Addresses the server by this name, which includes the port.
    #[must_use]
    pub fn with_host(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// Presents a token. A token that is no valid field value is not sent.
    #[must_use]
    pub fn with_bearer(self, token: &[u8]) -> Self {
        let bearer = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok();
        let bearer = bearer.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Self { bearer, ..self }
    }

    #[must_use]
    pub fn with_tls(self, tls: impl Into<Arc<UpstreamTls>>) -> Self {
        Self { tls: Some(tls.into()), ..self }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// # Errors
    /// [`JsonClientError`] when no complete response arrived within `timeout`.
    pub async fn get(&mut self, path: &str, timeout: Duration) -> Result<JsonResponse, JsonClientError> {
        self.request(Method::GET, path, &[], Bytes::new(), timeout).await
    }

    /// # Errors
    /// [`JsonClientError`] when no complete response arrived within `timeout`.
    pub async fn post(
        &mut self,
        path: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<JsonResponse, JsonClientError> {
        self.request(Method::POST, path, &[], Bytes::from(body.to_string()), timeout).await
    }

    /// A POST that must happen at most once, with this idempotency key.
    ///
    /// # Errors
    /// [`JsonClientError`] when no complete response arrived within `timeout`.
    pub async fn post_once(
        &mut self,
        path: &str,
        operation: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<JsonResponse, JsonClientError> {
        let fields = [("idempotency-key", operation)];
        self.request(Method::POST, path, &fields, Bytes::from(body.to_string()), timeout).await
    }

    /// Any request, with further fields.
    ///
    /// # Errors
    /// [`JsonClientError`] when no complete response arrived within `timeout`.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
        timeout: Duration,
    ) -> Result<JsonResponse, JsonClientError> {
        let answer = tokio::time::timeout(timeout, self.exchange(method, path, fields, body)).await;
        let answer = answer.unwrap_or(Err(JsonClientError::Timeout(timeout)));
        if answer.is_err() {
            // A late response on this connection would be taken for the response to the next request.
            self.connection = None;
        }
        answer
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
    ) -> Result<JsonResponse, JsonClientError> {
        let (answer, sender) = self.send(method, path, fields, body).await?;
        let answer = JsonResponse::from_response(answer).await?;
        self.connection = Some(sender);
        Ok(answer)
    }

    /// Sends a request and reads the head of the response. The connection is free again when the body has been read.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(Response<Incoming>, SendRequest<Full<Bytes>>), JsonClientError> {
        let mut sender = match self.connection.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(bearer) = &self.bearer {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("whoever asks knows how to write a path");
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        Ok((answer, sender))
    }
}

impl JsonResponse {
    async fn from_response(answer: Response<Incoming>) -> Result<Self, JsonClientError> {
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let field = |name| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        let outcome =
            field("fencing-outcome").map(|text| text.split(';').next().unwrap_or_default().to_owned());
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
        Ok(Self { status: head.status, outcome, token: field("fencing-token"), body })
    }
}

impl JsonClient {
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, JsonClientError> {
        let stream = TcpStream::connect(self.address).await.map_err(JsonClientError::Connect)?;
        stream.set_nodelay(true).map_err(JsonClientError::Connect)?;
        let Some(tls) = &self.tls else { return handshake(stream).await };
        let (stream, _) =
            tls.connect(&self.host, stream, &["http/1.1"]).await.map_err(JsonClientError::Tls)?;
        handshake(stream).await
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, JsonClientError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection task ends when the sender is dropped. Errors reach the caller that waits for a response.
    tokio::spawn(connection);
    Ok(sender)
}
