use std::future::poll_fn;

use bytes::Bytes;
use fencegate_http::body::Body;
use futures_util::FutureExt as _;
use hyper::{Request, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::{LocalSet, spawn_local, yield_now},
    time::{sleep, timeout},
};

use super::*;
use crate::upstream::client_connection::{self, RequestSender};

/// A server that has sent these bytes and has closed. The bytes can be read only after a write has failed, as if
/// bytes and close came at the same moment.
struct ClosedServer {
    said: &'static [u8],
    refused: bool,
    reader: Option<Waker>,
}

impl ClosedServer {
    fn having_sent(said: &'static str) -> Self {
        Self { said: said.as_bytes(), refused: false, reader: None }
    }
}

impl AsyncRead for ClosedServer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.refused {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (now, later) = self.said.split_at(self.said.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.said = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClosedServer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!self.refused, "it is written to once more");
        self.refused = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Sends a request, and returns the status of its response. The connection ends before the request is sent in full.
async fn request_status(closed: ClosedServer) -> Option<StatusCode> {
    let asked = async {
        let (mut sender, _running) =
            client_connection::handshake_http1(closed, 100).await.expect("a connection");
        // The body is larger than the buffer of the library, so a part of it cannot be written.
        let body = Body::from_bytes(Bytes::from_static(&[b'x'; 128 << 10])).with_max_chunk(1 << 10);
        let request = Request::post("/pay/7").header("host", "a.example").body(body).expect("a request");
        let status = sender.send(request).await.ok().map(|answer| answer.status());
        sender.wait_sent().await.expect_err("nobody takes the rest");
        status
    };
    timeout(Duration::from_secs(10), LocalSet::new().run_until(asked)).await.expect("it ends")
}

/// A response that was received is delivered although the request could not be written in full.
#[tokio::test(flavor = "current_thread")]
async fn early_response_survives_failed_write() {
    let refusal = "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(request_status(ClosedServer::having_sent(refusal)).await, Some(StatusCode::PAYLOAD_TOO_LARGE));
}

/// Bytes after a complete response do not keep the exchange open.
#[tokio::test(flavor = "current_thread")]
async fn bytes_after_response_are_ignored() {
    let refusal = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\nX";
    assert_eq!(request_status(ClosedServer::having_sent(refusal)).await, Some(StatusCode::PAYLOAD_TOO_LARGE));
}

/// Without a response, or with a part of one, the exchange ends without a status.
#[tokio::test(flavor = "current_thread")]
async fn missing_response_ends_exchange() {
    assert_eq!(request_status(ClosedServer::having_sent("")).await, None);
    assert_eq!(request_status(ClosedServer::having_sent("HTTP/1.1 413 Conte")).await, None);
}

/// A failed write ends when all incoming bytes were read, also if another task does the reading.
#[tokio::test(flavor = "current_thread")]
async fn failed_write_ends_after_last_read() {
    let (tracked, read_flag) = ReadTrackingIo::new(ClosedServer::having_sent("bye"));
    let (mut reader, mut writer) = tokio::io::split(tracked);
    let writing = async {
        let failed = writer.write_all(b"x").await.expect_err("nobody takes it");
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
        assert!(read_flag.get(), "it failed before all was heard");
        poll_fn(|cx| Pin::new(&mut writer).poll_write(cx, b"y")).await.expect_err("nobody takes it");
    };
    let reading = async {
        // This yield lets the write come first.
        yield_now().await;
        let mut said = String::new();
        reader.read_to_string(&mut said).await.expect("an end");
        assert_eq!(said, "bye");
    };
    timeout(Duration::from_secs(10), async { tokio::join!(writing, reading) }).await.expect("it ends");
}

/// A failed write ends when nothing was read for a while since the last byte, even if the connection is not read to
/// its end.
#[tokio::test(flavor = "current_thread")]
async fn failed_write_ends_after_silence() {
    let (tracked, _) = ReadTrackingIo::new(ClosedServer::having_sent("bye"));
    let (mut reader, mut writer) = tokio::io::split(tracked);
    let ended = async {
        let writing = spawn_local(async move {
            let failed = writer.write_all(b"x").await.expect_err("nobody takes it");
            (failed.kind(), Instant::now(), writer)
        });
        // This byte can be read only after the write has failed.
        assert_eq!(reader.read_u8().await.expect("a byte"), b'b');
        sleep(SILENCE / 2).await;
        let last = Instant::now();
        assert_eq!(reader.read_u8().await.expect("a byte"), b'y');
        let (kind, ended, mut writer) = writing.await.expect("no panic");
        assert_eq!(kind, io::ErrorKind::BrokenPipe);
        assert!(ended >= last + SILENCE, "it failed {:?} after the last byte", ended - last);
        assert_eq!(reader.read_u8().await.expect("a byte"), b'e');
        writer.write_all(b"y").now_or_never().expect("it does not wait again").expect_err("nobody takes it");
    };
    timeout(Duration::from_secs(10), LocalSet::new().run_until(ended)).await.expect("it ends");
}

/// After a switch of protocols a failed write is reported at once: otherwise a tunnel would wait for its client
/// although its upstream has gone.
#[tokio::test(flavor = "current_thread")]
async fn upgraded_stream_reports_failed_write() {
    let told = async {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let (mut sender, _running) =
            client_connection::handshake_http1(ours, 100).await.expect("a connection");
        let RequestSender::Http1(_, parting, _) = &sender else { panic!("it is HTTP/1.1") };
        let (taker, taken) = oneshot::channel();
        parting.set(Some(taker));
        let request = Request::get("/live").header("host", "a.example");
        let request = request.header("connection", "upgrade").header("upgrade", "chat");
        let answer = spawn_local(sender.send(request.body(Body::empty()).expect("a request")));
        theirs.read_u8().await.expect("a request");
        let switches = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\nbye";
        theirs.write_all(switches.as_bytes()).await.expect("taken");
        let answer = answer.await.expect("no panic").ok().expect("an answer");
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        let mut stream = taken.await.expect("a tunnel").stream;
        drop(theirs);
        let failed = stream.write_all(b"x").now_or_never().expect("it does not wait");
        assert_eq!(failed.expect_err("nobody takes it").kind(), io::ErrorKind::BrokenPipe);
    };
    timeout(Duration::from_secs(10), LocalSet::new().run_until(told)).await.expect("it ends");
}
