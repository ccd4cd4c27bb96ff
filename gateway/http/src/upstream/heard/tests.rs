use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use hyper::{Request, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::{LocalSet, yield_now},
    time::timeout,
};

use super::*;
use crate::{body::Body, upstream::speak};

/// It has said this much, and takes nothing. Nothing can be read before a write has failed, as where both come in one
/// moment.
struct Closed {
    said: &'static [u8],
    refused: bool,
    reader: Option<Waker>,
}

impl Closed {
    fn after(said: &'static str) -> Self {
        Self { said: said.as_bytes(), refused: false, reader: None }
    }
}

impl AsyncRead for Closed {
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

impl AsyncWrite for Closed {
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

/// What becomes of a request to it: the status of the answer.
async fn asked(closed: Closed) -> Option<StatusCode> {
    let asked = async {
        let (mut sender, _running) = speak::http1(closed).await.expect("a connection");
        let body = Body::whole(Bytes::from_static(&[b'x'; 64 << 10]));
        let request = Request::post("/pay/7").header("host", "a.example").body(body).expect("a request");
        sender.send(request).await.ok().map(|answer| answer.status())
    };
    timeout(Duration::from_secs(10), LocalSet::new().run_until(asked)).await.expect("it ends")
}

#[tokio::test(flavor = "current_thread")]
async fn an_answer_that_came_is_the_answer_although_the_request_could_not_be_written() {
    let refusal = "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(asked(Closed::after(refusal)).await, Some(StatusCode::PAYLOAD_TOO_LARGE));
}

#[tokio::test(flavor = "current_thread")]
async fn where_nothing_was_said_the_exchange_ends() {
    assert_eq!(asked(Closed::after("")).await, None);
    assert_eq!(asked(Closed::after("HTTP/1.1 413 Conte")).await, None);
}

/// Whoever writes may be another task than whoever reads.
#[tokio::test(flavor = "current_thread")]
async fn a_write_that_failed_ends_when_all_was_heard() {
    let (heard, word) = Heard::new(Closed::after("bye"));
    let (mut reader, mut writer) = tokio::io::split(heard);
    let writing = async {
        let failed = writer.write_all(b"x").await.expect_err("nobody takes it");
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
        assert!(word.get(), "it failed before all was heard");
        poll_fn(|cx| Pin::new(&mut writer).poll_write(cx, b"y")).await.expect_err("nobody takes it");
    };
    let reading = async {
        // The write is first.
        yield_now().await;
        let mut said = String::new();
        reader.read_to_string(&mut said).await.expect("an end");
        assert_eq!(said, "bye");
    };
    timeout(Duration::from_secs(10), async { tokio::join!(writing, reading) }).await.expect("it ends");
}
