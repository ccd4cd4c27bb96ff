//! Speaks HTTP/1.1 or HTTP/2 on a connection to an endpoint. Callers pass requests in one form for both.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    rc::{Rc, Weak},
};

use fencegate_http::{
    body::{Body, hop_by_hop::LIBRARYS_MOST},
    upgrade::{UpgradeSender, UpgradedIo},
};
use futures_util::{TryFutureExt, future::Either};
use hyper::{
    Request, Response, Uri, Version,
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
    header::{HOST, HeaderValue, TE, TRANSFER_ENCODING},
    http::uri::{Authority, Parts, PathAndQuery, Scheme},
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
    task::JoinSet,
};
use tracing::debug;

use super::{
    h2_observer::{H2ObservedIo, H2WriteState},
    read_tracker::{ReadTrackingIo, ResponseStartedFlag},
};

/// The names of the protocols in ALPN (RFC 7301).
pub const HTTP1: &str = "http/1.1";
pub const HTTP2: &str = "h2";

/// Sends the requests of one connection.
pub enum RequestSender {
    Http1(http1::SendRequest<Body>, UpgradeSlot, ResponseStartedFlag),
    Http2(http2::SendRequest<Body>, Rc<H2WriteState>, Scheme),
}

/// The tasks of one connection. The drop aborts all of them at once.
pub struct ConnectionTasks(Rc<RefCell<JoinSet<()>>>);

/// Has the sender that gets the connection's stream after a switch of protocols, if one was requested.
pub type UpgradeSlot = Rc<Cell<Option<UpgradeSender>>>;

/// The error of a request that got no response.
pub struct SendRequestError {
    pub why: hyper::Error,
    /// The request, if the library has not begun to send it.
    pub request: Option<Box<Request<Body>>>,
}

/// Marks a request whose client takes trailers. Only HTTP/2 passes this on to the upstream (`TE: trailers`, which gRPC
/// needs).
#[derive(Debug, Clone, Copy)]
pub struct AcceptsTrailers;

/// Spawns further tasks of a connection.
#[derive(Clone)]
struct ConnectionExecutor(Weak<RefCell<JoinSet<()>>>);

impl<F: Future<Output = ()> + 'static> Executor<F> for ConnectionExecutor {
    fn execute(&self, task: F) {
        // If the upgrade of the pointer fails, the connection is being dropped, so none of its tasks may start any
        // more.
        if let Some(tasks) = self.0.upgrade() {
            tasks.borrow_mut().spawn_local(task);
        }
    }
}

impl ConnectionTasks {
    fn new() -> Self {
        Self(Rc::default())
    }

    /// Removes the tasks that have ended.
    pub fn reap_finished(&self) {
        while self.0.borrow_mut().try_join_next().is_some() {}
    }
}

impl Drop for ConnectionTasks {
    fn drop(&mut self) {
        // The tasks are aborted, because otherwise they would go on writing.
        self.0.borrow_mut().abort_all();
    }
}

/// The most bytes of a response that are read before the client takes them, and the longest head. The library's default
/// is 400 KiB. A client that does not read costs up to five times as much: the library reads one chunk of this size,
/// passes one on, and holds two to be written, each in a buffer that may be larger.
const READ_AHEAD: usize = 48 << 10;

/// The limits of a response's head over HTTP/1.1. A larger head ends the exchange with an error.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHeadLimits {
    pub fields: usize,
    /// The longest head in bytes, and also the read-ahead of a body.
    pub bytes: usize,
}

/// Opens an HTTP/1.1 connection. `fields` is the most fields of a response.
pub(crate) async fn handshake_http1<S>(
    stream: S,
    fields: usize,
) -> io::Result<(RequestSender, ConnectionTasks)>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    handshake_http1_with_limits(stream, ResponseHeadLimits { fields, bytes: READ_AHEAD }).await
}

pub async fn handshake_http1_with_limits<S>(
    stream: S,
    heads: ResponseHeadLimits,
) -> io::Result<(RequestSender, ConnectionTasks)>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (stream, read_flag) = ReadTrackingIo::new(stream);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(heads.bytes);
    if heads.fields != LIBRARYS_MOST {
        builder.max_headers(heads.fields);
    }
    let (sender, mut connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let running = ConnectionTasks::new();
    let parting = UpgradeSlot::default();
    let taker = parting.clone();
    running.0.borrow_mut().spawn_local(async move {
        let over = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
        let ended = match (over, taker.take().filter(|taker| !taker.is_closed())) {
            (Ok(()), Some(taker)) => {
                let parts = connection.into_parts();
                let stream = Box::new(parts.io.into_inner().into_inner());
                // If the receiver has gone, the send fails, and the stream is dropped and closed.
                drop(taker.send(UpgradedIo { stream, first: parts.read_buf, held: None }));
                Ok(())
            }
            (Ok(()), None) => connection.await,
            (Err(error), _) => Err(error),
        };
        if let Err(error) = ended {
            debug!(%error, "upstream connection ended");
        }
    });
    Ok((RequestSender::Http1(sender, parting, read_flag), running))
}

/// Opens an HTTP/2 connection. Returns once the other side has shown that it speaks HTTP/2: before that no byte of a
/// request may be written.
pub(crate) async fn handshake_http2<S>(
    stream: S,
    scheme: Scheme,
) -> io::Result<(RequestSender, ConnectionTasks)>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let running = ConnectionTasks::new();
    let (stream, seen) = H2ObservedIo::new(stream);
    let (sender, connection) = http2::Builder::new(ConnectionExecutor(Rc::downgrade(&running.0)))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(LONGEST_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let (ended, ends) = oneshot::channel();
    running.0.borrow_mut().spawn_local(async move {
        let error = connection.await.err();
        debug!(error = error.as_ref().map(tracing::field::display), "upstream connection ended");
        // Once the connection is open, nobody receives this error, so the send fails.
        drop(ended.send(error));
    });
    tokio::select! {
        () = seen.wait_until(H2WriteState::is_http2_established) => {}
        ended = ends => {
            let why = ended.ok().flatten().map_or_else(|| "the connection ended".to_owned(), |error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                cause.unwrap_or_else(|| error.to_string())
            });
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP/2: {why}")));
        }
    }
    Ok((RequestSender::Http2(sender, seen, scheme), running))
}

/// The flow-control window for responses. A connection carries one exchange at a time.
const WINDOW: u32 = 256 << 10;
/// The longest head of a response, in bytes.
const LONGEST_HEAD: u32 = 64 << 10;

impl RequestSender {
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Http1(sender, ..) => sender.is_ready(),
            Self::Http2(sender, ..) => sender.is_ready(),
        }
    }

    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender, ..) => sender.is_closed(),
            Self::Http2(sender, ..) => sender.is_closed(),
        }
    }

    /// Returns when the last request is sent in full, or an error if it never will be.
    pub(crate) async fn wait_sent(&mut self) -> Result<(), hyper::Error> {
        match self {
            Self::Http1(sender, ..) => sender.ready().await,
            Self::Http2(sender, seen, _) => {
                seen.wait_until(H2WriteState::is_request_sent).await;
                sender.ready().await
            }
        }
    }

    /// True if no byte was received since the last request. Always false for HTTP/2, where frames may come at any time.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Http1(_, _, read_flag) if !read_flag.get())
    }

    /// True if the other side has said that it has processed nothing of the last request. Always false for HTTP/1.1,
    /// which cannot say that.
    pub fn is_request_unprocessed(&self) -> bool {
        matches!(self, Self::Http2(_, seen, _) if seen.is_request_unprocessed())
    }

    /// Sends a request in the form of HTTP/1.1: a path and a `Host`.
    pub fn send(
        &mut self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendRequestError>> + use<> {
        let answer = match self {
            Self::Http1(sender, _, read_flag) => {
                read_flag.set(false);
                Either::Left(sender.try_send_request(request))
            }
            Self::Http2(sender, seen, scheme) => {
                seen.begin_exchange();
                let request = to_http2(request, scheme.clone());
                Either::Right(sender.try_send_request(request))
            }
        };
        // The future is not wrapped in an async block, through which the response would be copied.
        answer.map_err(send_request_error)
    }
}

fn send_request_error(mut failed: TrySendError<Request<Body>>) -> SendRequestError {
    let back = failed.take_message().map(to_http1).map(Box::new);
    SendRequestError { why: failed.into_error(), request: back }
}

/// Converts a request to HTTP/2, which has the host as a pseudo-field and no connection-specific fields (RFC 9113,
/// 8.2.2 and 8.3.1).
fn to_http2(mut request: Request<Body>, scheme: Scheme) -> Request<Body> {
    *request.version_mut() = Version::HTTP_2;
    let host = request.headers_mut().remove(HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    if let Some(authority) = authority {
        let mut parts = Parts::default();
        let path = request.uri().path_and_query().cloned();
        (parts.scheme, parts.authority) = (Some(scheme), Some(authority));
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        *request.uri_mut() = Uri::from_parts(parts).expect("scheme, authority and path are all there");
    }
    request.headers_mut().remove(TRANSFER_ENCODING);
    if request.extensions().get::<AcceptsTrailers>().is_some() {
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    }
    request
}

/// Converts a returned request back to HTTP/1.1, because it may be sent again over that version.
fn to_http1(mut request: Request<Body>) -> Request<Body> {
    if request.version() != Version::HTTP_2 {
        return request;
    }
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().remove(TE);
    let uri = request.uri().clone();
    if let Some(authority) = uri.authority() {
        let host = HeaderValue::from_str(authority.as_str()).expect("an authority is visible ASCII");
        request.headers_mut().insert(HOST, host);
        let mut parts = Parts::default();
        parts.path_and_query = uri.path_and_query().cloned();
        *request.uri_mut() = Uri::from_parts(parts).expect("a path alone is a target");
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that an HTTP/2 connection returns has the URI and fields that it had before.
    #[test]
    fn returned_http2_request_is_restored() {
        let request = Request::post("/pay/7?x=1").header(HOST, "a.example:80").extension(AcceptsTrailers);
        let request = request.body(Body::empty()).expect("a request");
        let sent = to_http2(request, Scheme::HTTP);
        assert_eq!(sent.uri(), "http://a.example:80/pay/7?x=1");
        assert!(!sent.headers().contains_key(HOST));
        assert_eq!(sent.headers()[TE], "trailers");
        let back = to_http1(sent);
        assert_eq!(
            (back.uri().to_string().as_str(), &back.headers()[HOST]),
            ("/pay/7?x=1", &HeaderValue::from_static("a.example:80"))
        );
        assert!(!back.headers().contains_key(TE));
    }
}
