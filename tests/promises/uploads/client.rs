//! Clients that send a body in pieces and leave in the middle of it.

use std::{future::poll_fn, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use fencegate_testkit::wait::wait_until;
use fencegate_tests::{client::RawClient, gateway::Gateway};
use h2::{
    Reason, SendStream,
    client::{ResponseFuture, SendRequest},
};
use hyper::Request;
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinHandle};

/// The content type of these bodies, because a body without one is read as a form.
const BYTES: &str = "application/octet-stream";

/// The way in which the end of a body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadFraming {
    Length,
    Chunked,
    Http2,
    /// HTTP/2 frames with a `content-length`.
    Http2Length,
}

/// A request whose body is on its way. Dropping the value closes the connection in order.
pub(super) enum InFlightUpload {
    Raw(RawClient, UploadFraming),
    Stream(H2Upload),
}

/// An upload over HTTP/2.
pub(super) struct H2Upload {
    body: SendStream<Bytes>,
    answer: ResponseFuture,
    /// The connection, if this is its only stream.
    _connection: Option<SharedConnection>,
}

/// An HTTP/2 connection, for many uploads.
pub(super) struct SharedConnection {
    requests: SendRequest<Bytes>,
    address: SocketAddr,
    running: JoinHandle<()>,
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl SharedConnection {
    pub(super) async fn connect(gateway: &Gateway) -> Self {
        let address = gateway.public;
        let stream = TcpStream::connect(address).await.expect("listens");
        let (requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        Self { requests, address, running: tokio::spawn(async { drop(connection.await) }) }
    }

    pub(super) async fn upload(&self, path: &str) -> InFlightUpload {
        let (answer, body) = self.ask(path, None).await;
        InFlightUpload::Stream(H2Upload { body, answer, _connection: None })
    }

    async fn ask(&self, path: &str, length: Option<usize>) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request =
            Request::post(format!("http://{}{path}", self.address)).header("content-type", BYTES);
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let request = request.body(()).expect("a request");
        let mut requests = self.requests.clone().ready().await.expect("HTTP/2");
        requests.send_request(request, false).expect("HTTP/2")
    }
}

impl H2Upload {
    async fn begin(gateway: &Gateway, path: &str, length: Option<usize>) -> Self {
        let connection = SharedConnection::connect(gateway).await;
        let (answer, body) = connection.ask(path, length).await;
        Self { body, answer, _connection: Some(connection) }
    }

    /// Sends bytes. False if the gateway accepts no more.
    async fn send(&mut self, mut bytes: Bytes) -> bool {
        while !bytes.is_empty() {
            self.body.reserve_capacity(bytes.len());
            let Some(Ok(room)) = poll_fn(|cx| self.body.poll_capacity(cx)).await else { return false };
            let piece = bytes.split_to(room.min(bytes.len()));
            if self.body.send_data(piece, false).is_err() {
                return false;
            }
        }
        true
    }
}

impl InFlightUpload {
    /// Begins an upload. `length` is announced where the framing has a length.
    pub(super) async fn begin(gateway: &Gateway, framing: UploadFraming, path: &str, length: usize) -> Self {
        let announced = match framing {
            UploadFraming::Length => format!("Content-Length: {length}"),
            UploadFraming::Chunked => "Transfer-Encoding: chunked".to_owned(),
            UploadFraming::Http2 => return Self::Stream(H2Upload::begin(gateway, path, None).await),
            UploadFraming::Http2Length => {
                return Self::Stream(H2Upload::begin(gateway, path, Some(length)).await);
            }
        };
        let mut raw = RawClient::connect(gateway.public).await.expect("listens");
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {BYTES}\r\n{announced}\r\n\r\n");
        raw.send(head).await.expect("connected");
        Self::Raw(raw, framing)
    }

    /// Sends a part of the body. If the gateway accepts no more, the answer shows it.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Raw(raw, UploadFraming::Chunked) => {
                for piece in bytes.chunks(16 << 10) {
                    let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                    if raw.send(chunk).await.is_err() {
                        return;
                    }
                }
            }
            Self::Raw(raw, _) => drop(raw.send(bytes).await),
            Self::Stream(stream) => drop(stream.send(Bytes::copy_from_slice(bytes)).await),
        }
    }

    /// Ends the body, and returns the status and the outcome of the answer.
    pub(super) async fn finish(mut self) -> (u16, String) {
        match &mut self {
            Self::Raw(raw, UploadFraming::Chunked) => raw.send("0\r\n\r\n").await.expect("connected"),
            Self::Raw(..) => {}
            Self::Stream(stream) => stream.body.send_data(Bytes::new(), true).expect("open"),
        }
        self.answer().await
    }

    /// Returns the status and the outcome of the answer without ending the body.
    pub(super) async fn answer(&mut self) -> (u16, String) {
        let (status, outcome) = match self {
            Self::Raw(raw, _) => {
                let answer = wait_until("an answer", raw.read_response(), || "none").await.expect("answered");
                let outcome = answer.field("fencing-outcome").unwrap_or_default().to_owned();
                (answer.word(1).parse().expect("a status"), outcome)
            }
            Self::Stream(stream) => {
                let answer = wait_until("an answer", &mut stream.answer, || "none").await.expect("answered");
                let outcome = answer.headers().get("fencing-outcome");
                let outcome = outcome.map(|value| value.to_str().expect("a word").to_owned());
                (answer.status().as_u16(), outcome.unwrap_or_default())
            }
        };
        (status, outcome.split(';').next().unwrap_or_default().to_owned())
    }

    /// Hangs up with a reset.
    pub(super) fn reset(self) {
        match self {
            Self::Raw(raw, _) => raw.reset().expect("still connected"),
            Self::Stream(_) => panic!("a stream is reset by itself"),
        }
    }

    /// Resets the stream, and leaves the connection open.
    pub(super) fn reset_stream(&mut self, reason: Reason) {
        let Self::Stream(stream) = self else { panic!("HTTP/1.1 has no streams") };
        stream.body.send_reset(reason);
    }

    /// Sends a byte from time to time, until the gateway accepts no more.
    pub(super) async fn trickle(&mut self, pause: Duration) -> io::Result<()> {
        let Self::Raw(raw, UploadFraming::Length) = self else { panic!("only where bytes are the body") };
        loop {
            raw.output().write_all(b"x").await?;
            tokio::time::sleep(pause).await;
        }
    }
}
