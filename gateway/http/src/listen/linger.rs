//! Closes a connection from this side, so that a last refusal reaches the client.

use std::{fmt::Write as _, io, time::Duration, time::SystemTime};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use crate::body::Reply;

/// The bytes of an HTTP/1.1 response, with `connection: close`.
pub fn encode_http1_response(reply: &Reply) -> Bytes {
    let status = reply.status();
    let body = reply.body().bytes().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in reply.headers() {
        let value = value.to_str().expect("a refusal has fields of visible ASCII");
        write!(head, "{name}: {value}\r\n").expect("memory takes everything");
    }
    let date = httpdate::HttpDate::from(SystemTime::now());
    write!(head, "content-length: {}\r\nconnection: close\r\ndate: {date}\r\n\r\n", body.len())
        .expect("memory takes everything");
    [head.as_bytes(), body].concat().into()
}

/// Writes `words` and closes. If a connection is closed while the client still sends, it is reset, and the client
/// may lose the response. So incoming bytes are read and discarded for a moment.
pub async fn write_and_linger<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I, words: Bytes) {
    let closing = async {
        stream.write_all(&words).await?;
        stream.shutdown().await?;
        let mut sink = [0; SINK];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    // An error means that the client has gone, which needs no action.
    drop(timeout(LINGER, closing).await);
}

/// Closes after the last response. If there are unread bytes, they are read and discarded for a moment, as in
/// [`write_and_linger`].
pub(super) async fn linger<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I) {
    let mut sink = [0; SINK];
    let closed = async {
        stream.shutdown().await?;
        tokio::select! {
            biased;
            read = stream.read(&mut sink) => io::Result::Ok(read? > 0),
            () = std::future::ready(()) => Ok(false),
        }
    };
    if let Ok(Ok(true)) = timeout(LINGER, closed).await {
        write_and_linger(stream, Bytes::new()).await;
    }
}

const LINGER: Duration = Duration::from_secs(1);
const SINK: usize = 2048;
