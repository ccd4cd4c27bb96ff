//! An upstream that speaks HTTP/2 and records its requests. The path of a request selects the kind of answer.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use fencegate_policies::token::FencingToken;
use fencegate_testkit::wait::wait_until;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    HeaderMap, Request, Response, Version,
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
};

/// The upstream. `/early` is answered before its body is read, `/reset` ends with a reset of its stream, `/slow`
/// takes a while, `/late` takes [`LATE`], and `/last` is the last request of its connection. Requests for all other
/// paths are answered with their own body, and a trailer.
pub struct OriginH2 {
    pub address: SocketAddr,
    shared: Arc<OriginState>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct OriginState {
    records: Mutex<Vec<H2Request>>,
    /// The number of connections that are over.
    closed: watch::Sender<usize>,
}

/// A recorded request.
#[derive(Debug, Clone)]
pub struct H2Request {
    pub connection: usize,
    pub path: String,
    pub authority: String,
    pub version: Version,
    pub fields: BTreeMap<String, String>,
    /// The number of bytes of the body that were read.
    pub body: usize,
    /// True if the whole body was read.
    pub whole: bool,
    /// The number of requests that were open on the connection when this one arrived, including this one.
    pub beside: usize,
}

impl H2Request {
    /// The request's token.
    ///
    /// # Panics
    /// If the request has no token, or one that does not parse.
    pub fn token(&self) -> FencingToken {
        FencingToken::parse(&self.fields["fencing-token"]).expect("a token as the gateway writes it")
    }
}

impl OriginH2 {
    /// Starts the upstream on a free port of loopback.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("our own socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let shared = Arc::<OriginState>::default();
        let listening = {
            let shared = shared.clone();
            tokio::spawn(async move {
                let mut connections = JoinSet::new();
                let mut number = 0;
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(converse(shared.clone(), number, stream));
                    number += 1;
                }
            })
        };
        Self { address, shared, listening }
    }

    pub fn requests(&self) -> Vec<H2Request> {
        self.shared.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until at least this number of connections is over: both sides have closed them.
    pub async fn wait_closed(&self, connections: usize) {
        let mut closed = self.shared.closed.subscribe();
        let reached = async {
            closed.wait_for(|count| *count >= connections).await.expect("the origin lives");
        };
        wait_until("connections to be over", reached, || format!("{} are", *self.shared.closed.borrow()))
            .await;
    }

    pub fn requests_on(&self, path: &str) -> Vec<H2Request> {
        self.requests().into_iter().filter(|got| got.path == path).collect()
    }
}

impl Drop for OriginH2 {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Longer than a ZooKeeper session of the tests.
pub const LATE: Duration = Duration::from_secs(3);

/// The size of the flow-control windows. They are small, so that the origin does not take bytes that it does not
/// read.
const WINDOW: u32 = 64 << 10;

async fn converse(shared: Arc<OriginState>, connection: usize, stream: TcpStream) {
    let beside = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(Notify::new());
    let service = {
        let last = last.clone();
        let shared = shared.clone();
        service_fn(move |request| {
            let talk = H2Connection { shared: shared.clone(), connection, last: last.clone() };
            let beside = beside.clone();
            let count = beside.fetch_add(1, SeqCst) + 1;
            async move {
                let answer = talk.answer(request, count).await;
                beside.fetch_sub(1, SeqCst);
                answer
            }
        })
    };
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // Tests break connections on purpose, so an error is ignored.
        ended = served.as_mut() => drop(ended),
        () = last.notified() => {
            served.as_mut().graceful_shutdown();
            drop(served.await);
        }
    }
    shared.closed.send_modify(|count| *count += 1);
}

struct H2Connection {
    shared: Arc<OriginState>,
    connection: usize,
    last: Arc<Notify>,
}

type H2Response = Response<BoxBody<Bytes, Infallible>>;

impl H2Connection {
    async fn answer(self, request: Request<Incoming>, beside: usize) -> Result<H2Response, hyper::Error> {
        let path = request.uri().path().to_owned();
        let text = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let number = {
            let got = H2Request {
                connection: self.connection,
                path: path.clone(),
                authority: request.uri().authority().map(ToString::to_string).unwrap_or_default(),
                version: request.version(),
                fields: request.headers().iter().map(text).collect(),
                body: 0,
                whole: false,
                beside,
            };
            let mut records = self.shared.records.lock().unwrap_or_else(PoisonError::into_inner);
            records.push(got);
            records.len() - 1
        };
        if path.ends_with("/early") {
            // The unread body is dropped after the answer was sent.
            return Ok(reply(Bytes::from_static(b"early"), None));
        }
        let mut read = Vec::new();
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                read.extend_from_slice(&data);
                self.shared.records.lock().unwrap_or_else(PoisonError::into_inner)[number].body = read.len();
            }
        }
        self.shared.records.lock().unwrap_or_else(PoisonError::into_inner)[number].whole = true;
        if path.ends_with("/slow") {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if path.ends_with("/late") {
            tokio::time::sleep(LATE).await;
        }
        if path.ends_with("/reset") {
            // hyper turns an error of the service into a reset of the stream.
            return Err(self.broken_stream_error().await);
        }
        if path.ends_with("/last") {
            self.last.notify_one();
        }
        Ok(reply(read.into(), Some(("x-checksum", "42"))))
    }

    /// Provokes an error of hyper and returns it. Only hyper itself can make a value of this type.
    async fn broken_stream_error(&self) -> hyper::Error {
        let (near, far) = tokio::io::duplex(1);
        drop(far);
        let handshake =
            hyper::client::conn::http1::handshake::<_, BoxBody<Bytes, Infallible>>(TokioIo::new(near));
        let (mut sender, connection) = handshake.await.expect("nothing is written yet");
        drop(connection);
        let request = Request::new(BoxBody::default());
        sender.send_request(request).await.expect_err("nobody is there")
    }
}

fn reply(body: Bytes, trailer: Option<(&'static str, &'static str)>) -> H2Response {
    let trailers = trailer.map(|(name, value)| {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, value.parse().expect("a field value"));
        Frame::trailers(trailers)
    });
    let frames = [Some(Frame::data(body)), trailers].into_iter().flatten().map(Ok);
    let mut answer = Response::new(BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames))));
    if let Some((name, _)) = trailer {
        // Proxies may drop trailers that the head does not announce.
        answer.headers_mut().insert("trailer", name.parse().expect("a field value"));
    }
    answer
}
