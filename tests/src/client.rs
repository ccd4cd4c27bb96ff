//! Clients: two that speak HTTP/1.1 and HTTP/2 through hyper, and two that say any bytes, or any frames.

pub mod frames;
mod raw;
mod secure;
mod streams;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fencegate_policies::token::Token;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
};

pub use self::{raw::Raw, secure::Secure, streams::Streams};

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Ask {
    method: &'static str,
    target: String,
    fields: Vec<(String, String)>,
    body: Bytes,
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub fields: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
    pub invoked: Instant,
    pub completed: Instant,
}

/// What `Fencing-Outcome` says, without its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Replayed,
    NotDispatched,
    Unknown,
}

/// One connection to a gateway. Dropping it hangs up.
pub struct Client {
    requests: http1::SendRequest<Full<Bytes>>,
    address: SocketAddr,
    connection: JoinHandle<()>,
}

impl Ask {
    pub fn get(target: &str) -> Self {
        Self::with_method("GET", target)
    }

    pub fn post(target: &str) -> Self {
        Self::with_method("POST", target)
    }

    pub fn with_method(method: &'static str, target: &str) -> Self {
        Self { method, target: target.to_owned(), fields: Vec::new(), body: Bytes::new() }
    }

    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// On a connection of its own. Dropping the future hangs up.
    ///
    /// # Errors
    /// When the connection broke before the answer was complete.
    pub async fn to(&self, address: SocketAddr) -> Result<Answer, String> {
        Client::connect(address).await?.send(self).await
    }
}

/// What all of them but the narrow ones speak over.
async fn connected(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("connect: {error}"))?;
    stream.set_nodelay(true).map_err(|error| format!("nodelay: {error}"))?;
    Ok(stream)
}

impl Client {
    /// # Errors
    /// When nobody listens.
    pub async fn connect(address: SocketAddr) -> Result<Self, String> {
        Self::over(connected(address).await?, address).await
    }

    /// Over a stream that is there already.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
    ) -> Result<Self, String> {
        let (requests, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("handshake: {error}"))?;
        // The error also reaches whoever waits for an answer.
        let connection = tokio::spawn(async { drop(connection.await) });
        Ok(Self { requests, address, connection })
    }

    /// # Errors
    /// When the connection broke before the answer was complete.
    pub async fn send(&mut self, ask: &Ask) -> Result<Answer, String> {
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
        Answer::read(response, invoked).await.map_err(broke)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Answer {
    async fn read(response: hyper::Response<Incoming>, invoked: Instant) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        Ok(Self {
            status: head.status.as_u16(),
            fields: head.headers,
            body: collected.to_bytes(),
            trailers,
            invoked,
            completed: Instant::now(),
        })
    }

    /// # Panics
    /// If the field stands there twice, or is not text.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().expect("a text field"));
        assert!(values.next().is_none(), "`{name}` stands twice in {self:?}");
        value
    }

    /// None if the answer does not tell.
    ///
    /// # Panics
    /// On a word that is no outcome.
    pub fn outcome(&self) -> Option<Outcome> {
        let word = self.field("fencing-outcome")?.split(';').next().unwrap_or_default().trim();
        Some(match word {
            "done" => Outcome::Done,
            "replayed" => Outcome::Replayed,
            "not-dispatched" => Outcome::NotDispatched,
            "unknown" => Outcome::Unknown,
            other => panic!("no outcome: `{other}`"),
        })
    }

    /// # Panics
    /// If there is a token that does not parse.
    pub fn token(&self) -> Option<Token> {
        Some(Token::parse(self.field("fencing-token")?).expect("a token as the gateway writes it"))
    }

    /// The reason of a refusal, after checking that all its parts say the same.
    ///
    /// # Panics
    /// If the answer is no well-formed refusal.
    pub fn reason(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("a problem is JSON");
        let text = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
        let reason = text("reason");
        assert_eq!(text("type"), format!("urn:fencegate:{reason}"), "{problem}");
        assert_eq!(problem["status"], self.status, "{problem}");
        assert!(!text("title").is_empty(), "{problem}");
        let header = self.field("fencing-outcome").and_then(|value| value.split(';').next());
        if let Some(header) = header {
            assert_eq!(text("outcome"), header.trim(), "{problem}");
        }
        reason
    }

    pub fn took(&self) -> Duration {
        self.completed - self.invoked
    }
}
