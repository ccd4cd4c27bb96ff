//! A client that keeps one HTTP/1.1 connection and exchanges JSON. The verbs for operators and the clients of the
//! demo use it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use crate::http1::{ClientStream, ExchangeError, Http1Connection};
use crate::upstream::tls::UpstreamTlsConnector;

/// A client for JSON. It opens a connection when it needs one, and opens another one after the connection broke.
pub struct JsonClient {
    address: SocketAddr,
    /// The host name of the server.
    host: String,
    bearer: Option<HeaderValue>,
    tls: Option<Arc<UpstreamTlsConnector>>,
    connection: Option<JsonConnection>,
}

type JsonConnection = Http1Connection<Box<dyn ClientStream>>;

/// The most bytes of a response that is read as a whole: there is no limit.
const LONGEST: usize = usize::MAX;

/// A complete response.
#[derive(Debug)]
pub struct JsonClientResponse {
    pub status: StatusCode,
    /// The word of `Fencing-Outcome`, without its parameters.
    pub outcome: Option<String>,
    pub token: Option<String>,
    /// The body as JSON; a body that is no JSON becomes a JSON string.
    pub body: Value,
}

/// The reason for which there is no response.
#[derive(Debug, thiserror::Error)]
pub enum JsonClientError {
    /// The connection could not be made, so nothing was sent.
    #[error("cannot connect to the server")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake with the server failed")]
    Tls(#[source] io::Error),
    #[error("the connection to the server broke")]
    Broken(#[from] hyper::Error),
    #[error(transparent)]
    Response(ExchangeError),
    #[error("the server sent no answer within {0:?}")]
    Timeout(Duration),
}

impl JsonClient {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), bearer: None, tls: None, connection: None }
    }

    /// Sets the host name, with its port, under which the server is addressed.
    #[must_use]
    pub fn with_host(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// Presents a bearer token. A token that is no valid field value is not sent.
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
    pub fn with_tls(self, tls: impl Into<Arc<UpstreamTlsConnector>>) -> Self {
        Self { tls: Some(tls.into()), ..self }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// # Errors
    /// Returns a [`JsonClientError`] if no complete response arrived within `timeout`.
    pub async fn get(
        &mut self,
        path: &str,
        timeout: Duration,
    ) -> Result<JsonClientResponse, JsonClientError> {
        self.request(Method::GET, path, &[], Bytes::new(), timeout).await
    }

    /// # Errors
    /// Returns a [`JsonClientError`] if no complete response arrived within `timeout`.
    pub async fn post(
        &mut self,
        path: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<JsonClientResponse, JsonClientError> {
        self.request(Method::POST, path, &[], Bytes::from(body.to_string()), timeout).await
    }

    /// Sends a POST that must be executed at most once, with this idempotency key.
    ///
    /// # Errors
    /// Returns a [`JsonClientError`] if no complete response arrived within `timeout`.
    pub async fn post_once(
        &mut self,
        path: &str,
        operation: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<JsonClientResponse, JsonClientError> {
        let fields = [("idempotency-key", operation)];
        self.request(Method::POST, path, &fields, Bytes::from(body.to_string()), timeout).await
    }

    /// Sends any request, with further fields.
    ///
    /// # Errors
    /// Returns a [`JsonClientError`] if no complete response arrived within `timeout`.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
        timeout: Duration,
    ) -> Result<JsonClientResponse, JsonClientError> {
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
    ) -> Result<JsonClientResponse, JsonClientError> {
        let request = self.build_request(method, path, fields, body);
        let mut connection = self.take_connection().await?;
        let answer = connection.exchange(request, LONGEST).await?;
        self.connection = Some(connection);
        Ok(JsonClientResponse::from_response(&answer))
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
    ) -> Request<Full<Bytes>> {
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
        request.body(Full::new(body)).expect("whoever asks knows how to write a path")
    }

    async fn take_connection(&mut self) -> Result<JsonConnection, JsonClientError> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_open()
        {
            return Ok(connection);
        }
        self.connect().await
    }
}

impl JsonClientResponse {
    fn from_response(answer: &Response<Bytes>) -> Self {
        let body = answer.body();
        let field = |name| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        let outcome =
            field("fencing-outcome").map(|text| text.split(';').next().unwrap_or_default().to_owned());
        let text = || Value::String(String::from_utf8_lossy(body).into_owned());
        let json = serde_json::from_slice(body).unwrap_or_else(|_| text());
        Self { status: answer.status(), outcome, token: field("fencing-token"), body: json }
    }
}

impl JsonClient {
    async fn connect(&self) -> Result<JsonConnection, JsonClientError> {
        let stream = TcpStream::connect(self.address).await.map_err(JsonClientError::Connect)?;
        stream.set_nodelay(true).map_err(JsonClientError::Connect)?;
        let stream: Box<dyn ClientStream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let shaken = tls.connect(&self.host, stream, &["http/1.1"]).await;
                Box::new(shaken.map_err(JsonClientError::Tls)?.0)
            }
        };
        Ok(Http1Connection::handshake(stream).await?)
    }
}

impl From<ExchangeError> for JsonClientError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Broken(error) => Self::Broken(error),
            error @ ExchangeError::TooLong => Self::Response(error),
        }
    }
}

/// A response whose body has not been read yet.
pub struct StreamedResponse {
    body: Incoming,
    connection: JsonConnection,
}

impl JsonClient {
    /// Sends a POST without a body, on a connection that is not used again. An error response is read as a whole.
    ///
    /// # Errors
    /// Returns a [`JsonClientError`] if no head of a response arrived within `patience`.
    pub async fn post_stream(
        &mut self,
        path: &str,
        patience: Duration,
    ) -> Result<Result<StreamedResponse, JsonClientResponse>, JsonClientError> {
        let begun = async {
            let request = self.build_request(Method::POST, path, &[], Bytes::new());
            let mut connection = self.take_connection().await?;
            let (head, body) = connection.send(request).await?.into_parts();
            if head.status.is_success() {
                return Ok(Ok(StreamedResponse { body, connection }));
            }
            let body = connection.read_body(body, LONGEST).await?;
            Ok(Err(JsonClientResponse::from_response(&Response::from_parts(head, body))))
        };
        timeout(patience, begun).await.unwrap_or(Err(JsonClientError::Timeout(patience)))
    }
}

impl StreamedResponse {
    /// Reads the next part of the body; `None` after its end.
    ///
    /// # Errors
    /// Returns an error if the response broke off, or if nothing arrived within `patience`.
    pub async fn next_chunk(&mut self, patience: Duration) -> Result<Option<Bytes>, JsonClientError> {
        loop {
            let frame = timeout(patience, self.connection.next_frame(&mut self.body)).await;
            let Some(frame) = frame.map_err(|_| JsonClientError::Timeout(patience))? else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}
