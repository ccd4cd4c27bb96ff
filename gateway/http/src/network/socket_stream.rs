//! A TCP or unix connection. No other file distinguishes the two.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::ResetOnClose;

/// A connection over a socket of the kernel.
#[derive(Debug)]
pub enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:expr, $stream:ident => $does:expr) => {
        match $self.get_mut() {
            SocketStream::Tcp($stream) => $does,
            SocketStream::Unix($stream) => $does,
        }
    };
}

impl AsyncRead for SocketStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for SocketStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    /// Both kinds of socket write several buffers in one call.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl ResetOnClose for SocketStream {
    fn reset_on_close(&self) {
        match self {
            // This fails only on a socket that is already closed.
            Self::Tcp(stream) => drop(SockRef::from(stream).set_linger(Some(Duration::ZERO))),
            // A unix socket needs no reset: written bytes reach the peer at once.
            Self::Unix(_) => {}
        }
    }

    fn flush_on_close(&self) {
        match self {
            Self::Tcp(stream) => drop(SockRef::from(stream).set_linger(None)),
            Self::Unix(_) => {}
        }
    }

    /// Sets `TCP_USER_TIMEOUT`. The kernel counts it from the first attempt to send the oldest unacknowledged byte,
    /// and also while the peer's window is full.
    fn set_unacknowledged_timeout(&self, unacknowledged: Option<Duration>) {
        match self {
            // The kernel counts in milliseconds, and takes zero for its own default, so the limit is at least one.
            Self::Tcp(stream) => {
                let limit = unacknowledged.map(|limit| limit.max(Duration::from_millis(1)));
                // This fails only on a socket that is already closed.
                drop(SockRef::from(stream).set_tcp_user_timeout(limit));
            }
            Self::Unix(_) => {}
        }
    }

    /// A TCP socket has no peer any more once its last byte and both closes are acknowledged, or once it was reset.
    fn is_fully_closed(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                stream.peer_addr().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
            }
            Self::Unix(_) => true,
        }
    }

    fn has_hung_up(&self) -> bool {
        let known = match self {
            Self::Tcp(stream) => stream.ready(Interest::READABLE).now_or_never(),
            Self::Unix(stream) => stream.ready(Interest::READABLE).now_or_never(),
        };
        known.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The close of the remote end is seen before its last bytes are read.
    #[tokio::test]
    async fn hangup_is_seen_before_last_bytes() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut ours = SocketStream::Unix(ours);
        assert!(!ours.has_hung_up());
        theirs.write_all(b"last").await.expect("written");
        drop(theirs);
        // The runtime has to poll the socket before the close is seen.
        tokio::time::timeout(Duration::from_secs(10), async {
            while !ours.has_hung_up() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("seen");
        let mut read = String::new();
        ours.read_to_string(&mut read).await.expect("read");
        assert_eq!(read, "last");
        ours.write_all(b"late").await.expect_err("nobody is there");
    }

    /// A unix socket accepts all options, and its bytes are delivered by the write: none waits in the sender's
    /// kernel.
    #[tokio::test]
    async fn unix_socket_delivers_at_write() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut ours = SocketStream::Unix(ours);
        ours.reset_on_close();
        ours.set_unacknowledged_timeout(Some(Duration::ZERO));
        ours.write_all(b"all").await.expect("open");
        assert!(ours.is_fully_closed());
        drop(ours);
        let mut read = String::new();
        theirs.read_to_string(&mut read).await.expect("read");
        assert_eq!(read, "all");
    }
}
