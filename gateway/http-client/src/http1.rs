//! One HTTP/1.1 connection that carries one request after another, for everything but the request path: verbs, checks,
//! and the fetches and reports of a process. It has no task of its own: the caller drives it with each request, and
//! nothing of it is left when it is dropped.

use std::future::Future;

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{Either, select},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// One HTTP/1.1 connection over any stream.
pub struct Http1Connection<S: AsyncRead + AsyncWrite, B: Body + 'static = Full<Bytes>> {
    sender: SendRequest<B>,
    /// `None` once the connection has ended.
    connection: Option<http1::Connection<TokioIo<S>, B>>,
}

/// The reason for which there is no complete response. The request may have had an effect.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    #[error("the response is too long")]
    TooLong,
}

/// Any stream that the client can use, with or without TLS.
pub trait ClientStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> ClientStream for S {}

impl<S, B> Http1Connection<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// # Errors
    /// Returns an error if the library refuses the stream. Nothing was sent.
    pub async fn handshake(stream: S) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, connection: Some(connection) })
    }

    /// True if the other side has not closed the connection, as far as this machine knows.
    pub fn is_open(&mut self) -> bool {
        if self.connection.as_mut().is_some_and(|connection| connection.now_or_never().is_some()) {
            self.connection = None;
        }
        self.connection.is_some() && !self.sender.is_closed()
    }

    /// Sends a request and reads the whole response, of at most `longest` bytes.
    ///
    /// # Errors
    /// Returns an [`ExchangeError`] if there is no complete response.
    ///
    /// # Cancellation
    /// If the future is dropped, the caller has to drop the connection too: a late response would be taken for the
    /// response to the next request.
    pub async fn exchange(
        &mut self,
        request: Request<B>,
        longest: usize,
    ) -> Result<Response<Bytes>, ExchangeError> {
        let (head, body) = self.send(request).await?.into_parts();
        Ok(Response::from_parts(head, self.read_body(body, longest).await?))
    }

    /// Reads the body of a response, of at most `longest` bytes.
    ///
    /// # Errors
    /// Returns an [`ExchangeError`] if the body is not complete.
    pub async fn read_body(&mut self, body: Incoming, longest: usize) -> Result<Bytes, ExchangeError> {
        match drive(&mut self.connection, Limited::new(body, longest).collect()).await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(match error.downcast::<hyper::Error>() {
                Ok(broken) => ExchangeError::Broken(*broken),
                Err(error) => {
                    debug_assert!(error.is::<LengthLimitError>(), "{error}");
                    ExchangeError::TooLong
                }
            }),
        }
    }

    /// Sends a request and reads the head of the response. The body is read by [`Self::read_body`] or
    /// [`Self::next_frame`].
    ///
    /// # Errors
    /// Returns an error if the connection broke.
    pub async fn send(&mut self, request: Request<B>) -> hyper::Result<Response<Incoming>> {
        let Self { sender, connection } = self;
        let response = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        drive(connection, response).await
    }

    /// Reads the next part of a response's body; `None` after its end.
    pub async fn next_frame(&mut self, body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
        drive(&mut self.connection, body.frame()).await
    }
}

/// Drives the connection together with its exchange. If the connection ends first, the exchange is still awaited: it
/// also gets the error of the connection, or the response may have come before the end.
async fn drive<T>(connection: &mut Option<impl Future + Unpin>, exchange: impl Future<Output = T>) -> T {
    let exchange = std::pin::pin!(exchange);
    let Some(running) = connection else { return exchange.await };
    match select(exchange, running).await {
        Either::Left((done, _)) => done,
        Either::Right((_, exchange)) => {
            *connection = None;
            exchange.await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::timeout,
    };

    use super::*;

    fn question() -> Request<Full<Bytes>> {
        Request::get("/").header("host", "a").body(Full::default()).expect("a request")
    }

    /// Reads one request without a body, and answers it.
    async fn answer(server: &mut DuplexStream, response: &str) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(server.read_u8().await.expect("a request"));
        }
        server.write_all(response.as_bytes()).await.expect("it reads");
    }

    /// A connection serves one request after another, and is closed once the server has closed it.
    #[tokio::test]
    async fn connection_is_reused_until_closed() {
        let (client, mut server) = duplex(1 << 10);
        let mut connection = Http1Connection::handshake(client).await.expect("a connection");
        for body in ["one", "two"] {
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{body}");
            let (answered, ()) =
                tokio::join!(connection.exchange(question(), 3), answer(&mut server, &response));
            let answered = answered.expect("an answer");
            assert_eq!((answered.status(), &**answered.body()), (StatusCode::OK, body.as_bytes()));
            assert!(connection.is_open());
        }
        drop(server);
        assert!(!connection.is_open());
        assert!(connection.exchange(question(), 3).await.is_err());
    }

    /// A response that is longer than allowed is an error, and so is a response that breaks off.
    #[tokio::test]
    async fn long_or_broken_response_is_refused() {
        let (client, mut server) = duplex(1 << 10);
        let mut connection = Http1Connection::handshake(client).await.expect("a connection");
        let long = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlong";
        let (answered, ()) = tokio::join!(connection.exchange(question(), 3), answer(&mut server, long));
        assert!(matches!(answered, Err(ExchangeError::TooLong)), "{answered:?}");

        let (client, mut server) = duplex(1 << 10);
        let mut connection = Http1Connection::handshake(client).await.expect("a connection");
        let (answered, ()) = tokio::join!(connection.exchange(question(), 3), async {
            answer(&mut server, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\no").await;
            drop(server);
        });
        assert!(matches!(answered, Err(ExchangeError::Broken(_))), "{answered:?}");
    }

    /// A response is complete even if the server closes the connection right after it.
    #[tokio::test]
    async fn response_before_end_of_connection_counts() {
        let (client, mut server) = duplex(1 << 10);
        let mut connection = Http1Connection::handshake(client).await.expect("a connection");
        let response = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end";
        let (answered, ()) = tokio::join!(connection.exchange(question(), 100), async {
            answer(&mut server, response).await;
            drop(server);
        });
        assert_eq!(answered.expect("an answer").body(), "until the end");
        assert!(!connection.is_open());
    }

    /// A dropped connection closes its stream, also in the middle of an exchange.
    #[tokio::test]
    async fn dropped_connection_closes_stream() {
        let (client, mut server) = duplex(1 << 10);
        let mut connection = Http1Connection::handshake(client).await.expect("a connection");
        let exchange = timeout(Duration::from_millis(10), connection.exchange(question(), 3));
        assert!(exchange.await.is_err(), "nobody answers");
        drop(connection);
        let mut head = Vec::new();
        server.read_to_end(&mut head).await.expect("the end");
        assert!(head.starts_with(b"GET / HTTP/1.1\r\n"));
    }
}
