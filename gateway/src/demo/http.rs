//! A client that keeps one HTTP/1.1 connection and speaks JSON.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::Trouble;

/// One connection, made when it is needed, and again when it broke.
pub(super) struct Client {
    address: SocketAddr,
    connection: Option<SendRequest<Full<Bytes>>>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The word of `Fencing-Outcome`, without its parameters.
    pub(super) outcome: Option<String>,
    pub(super) token: Option<String>,
    /// Null where the answer is no JSON.
    pub(super) body: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// Nothing was sent.
    #[error("connect")]
    Connect(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl Client {
    pub(super) fn of(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// Gets an object that must be there.
    ///
    /// # Errors
    /// [`Trouble`] for any other answer than 200.
    pub(super) async fn get(&mut self, path: &str) -> Result<Value, Trouble> {
        let (address, path) = (self.address, path.to_owned());
        match self.send(Method::GET, &path, "", Bytes::new(), Duration::from_secs(10)).await {
            Ok(answer) if answer.status == StatusCode::OK => Ok(answer.body),
            Ok(answer) => Err(Trouble::Unexpected { address, path, said: answer.status.to_string() }),
            Err(source) => Err(Trouble::Unanswered { address, path, source }),
        }
    }

    /// # Errors
    /// [`Unanswered`] when no complete answer came within `timeout`.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: &Value,
        operation: &str,
        timeout: Duration,
    ) -> Result<Answer, Unanswered> {
        self.send(Method::POST, path, operation, Bytes::from(body.to_string()), timeout).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        operation: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Answer, Unanswered> {
        let answer = tokio::time::timeout(timeout, self.exchange(method, path, operation, body)).await;
        let answer = answer.unwrap_or(Err(Unanswered::Timeout(timeout)));
        if answer.is_err() {
            // An answer that is still to come would be taken for that of the next request.
            self.connection = None;
        }
        answer
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        operation: &str,
        body: Bytes,
    ) -> Result<Answer, Unanswered> {
        let mut sender = match self.connection.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => connect(self.address).await?,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::CONTENT_TYPE, "application/json");
        if !operation.is_empty() {
            request = request.header("idempotency-key", operation);
        }
        let request = request.body(Full::new(body)).expect("paths of the demo are plain");
        sender.ready().await?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.connection = Some(sender);

        let field = |name| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        let outcome =
            field("fencing-outcome").map(|text| text.split(';').next().unwrap_or_default().to_owned());
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer { status: head.status, outcome, token: field("fencing-token"), body })
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Unanswered> {
    let stream = TcpStream::connect(address).await.map_err(Unanswered::Connect)?;
    stream.set_nodelay(true).map_err(Unanswered::Connect)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends when the sender is dropped; what broke it is told to whoever waits for an answer.
    tokio::spawn(connection);
    Ok(sender)
}
