//! Distinguishes HTTP/2 from HTTP/1.1 by the first bytes of a connection, before any HTTP library sees it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use fencegate_policies::plan::ListenerProtocols;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::network::ResetOnClose;

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetectedProtocol {
    Http1,
    Http2,
}

/// The first bytes of every HTTP/2 client (RFC 9113, 3.4). No HTTP/1.1 request begins like this: `PRI` is reserved.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The result of the detection.
pub(super) enum DetectResult<I> {
    Detected(DetectedProtocol, PrefixedIo<I>),
    /// The client speaks a protocol that the listener does not serve, for this reason.
    Foreign(I, &'static str),
    Gone,
}

/// Reads until the protocol is known, and no further than necessary.
///
/// # Cancellation
/// Dropping the future loses the bytes that were read, so the connection cannot be used after that.
pub(super) async fn detect<I: AsyncRead + Unpin>(
    mut stream: I,
    protocols: ListenerProtocols,
) -> io::Result<DetectResult<I>> {
    let mut first = BytesMut::with_capacity(FIRST_READ);
    loop {
        if stream.read_buf(&mut first).await? == 0 {
            return Ok(DetectResult::Gone);
        }
        if first[0] == TLS_HANDSHAKE {
            return Ok(DetectResult::Foreign(stream, "TLS, where plain HTTP is expected"));
        }
        let known = match (match_preface(&first), protocols) {
            (Some(true), ListenerProtocols::Both | ListenerProtocols::Http2) => DetectedProtocol::Http2,
            (Some(false), ListenerProtocols::Both | ListenerProtocols::Http1) => DetectedProtocol::Http1,
            (Some(true), ListenerProtocols::Http1) => {
                return Ok(DetectResult::Foreign(stream, "HTTP/2, which is not spoken here"));
            }
            (Some(false), ListenerProtocols::Http2) => {
                return Ok(DetectResult::Foreign(
                    stream,
                    "something else than HTTP/2, which alone is spoken here",
                ));
            }
            (None, _) => continue,
        };
        return Ok(DetectResult::Detected(known, PrefixedIo { first: first.freeze(), stream }));
    }
}

/// The size of the first read. It holds most request heads, so that few of them need a second read.
const FIRST_READ: usize = 4096;

/// The first byte of every TLS connection, and of no HTTP request.
const TLS_HANDSHAKE: u8 = 0x16;

/// True if these bytes begin with the preface; `None` if more bytes have to decide.
fn match_preface(first: &[u8]) -> Option<bool> {
    if first.len() >= PREFACE.len() {
        return Some(first.starts_with(PREFACE));
    }
    (!PREFACE.starts_with(first)).then_some(false)
}

/// Reads the first bytes, and tells whether they begin a TLS handshake. `None` if the client has gone.
pub(super) async fn begins_with_tls<I: AsyncRead + Unpin>(
    mut stream: I,
) -> io::Result<Option<(bool, PrefixedIo<I>)>> {
    let mut first = BytesMut::with_capacity(FIRST_READ);
    let gone = stream.read_buf(&mut first).await? == 0;
    Ok((!gone).then(|| (first[0] == TLS_HANDSHAKE, PrefixedIo { first: first.freeze(), stream })))
}

/// A stream whose first bytes were read before. Readers get these bytes first.
pub struct PrefixedIo<I> {
    first: Bytes,
    stream: I,
}

impl<I> PrefixedIo<I> {
    pub(super) fn new(stream: I) -> Self {
        Self::with_prefix(Bytes::new(), stream)
    }

    pub(super) fn with_prefix(first: Bytes, stream: I) -> Self {
        Self { first, stream }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for PrefixedIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let taken = this.first.len().min(buffer.remaining());
        buffer.put_slice(&this.first[..taken]);
        this.first.advance(taken);
        if this.first.is_empty() {
            // Frees the memory of the first bytes, which were all read.
            this.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for PrefixedIo<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl<I: ResetOnClose> ResetOnClose for PrefixedIo<I> {
    fn reset_on_close(&self) {
        self.stream.reset_on_close();
    }

    fn flush_on_close(&self) {
        self.stream.flush_on_close();
    }

    fn set_unacknowledged_timeout(&self, unacknowledged: Option<Duration>) {
        self.stream.set_unacknowledged_timeout(unacknowledged);
    }

    fn is_fully_closed(&self) -> bool {
        self.stream.is_fully_closed()
    }

    fn has_hung_up(&self) -> bool {
        self.stream.has_hung_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn detect_in_bytes(bytes: &[u8], protocols: ListenerProtocols) -> Option<DetectedProtocol> {
        let (mut client, server) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut client, bytes).await.expect("it fits");
        drop(client);
        let DetectResult::Detected(told, mut stream) = detect(server, protocols).await.expect("no error")
        else {
            return None;
        };
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.expect("no error");
        assert_eq!(read, bytes, "every byte is read again");
        Some(told)
    }

    /// The first bytes decide the protocol, and the reader of the stream gets all of them.
    #[tokio::test]
    async fn first_bytes_decide_protocol() {
        use ListenerProtocols::{Both, Http1, Http2};
        let preface = [PREFACE, b"and more"].concat();
        for (bytes, protocols, wanted) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], Both, Some(DetectedProtocol::Http1)),
            (b"PRI * HTTP/2.0\r\n\r\nSN", Both, Some(DetectedProtocol::Http1)),
            (b"P", Both, None),
            (b"PO", Both, Some(DetectedProtocol::Http1)),
            (b"", Both, None),
            (&preface, Both, Some(DetectedProtocol::Http2)),
            (&preface, Http2, Some(DetectedProtocol::Http2)),
            (&preface, Http1, None),
            (b"\x16\x03\x01", Both, None),
            (b"GET /", Http2, None),
        ] {
            assert_eq!(
                detect_in_bytes(bytes, protocols).await,
                wanted,
                "{} {protocols:?}",
                bytes.escape_ascii()
            );
        }
    }

    #[tokio::test]
    async fn preface_is_detected_byte_by_byte() {
        let (mut client, server) = tokio::io::duplex(64);
        let detected = tokio::spawn(detect(server, ListenerProtocols::Both));
        for byte in PREFACE {
            tokio::io::AsyncWriteExt::write_all(&mut client, &[*byte]).await.expect("it is read");
            tokio::task::yield_now().await;
        }
        let told = detected.await.expect("no panic").expect("no error");
        assert!(matches!(told, DetectResult::Detected(DetectedProtocol::Http2, _)));
    }
}
