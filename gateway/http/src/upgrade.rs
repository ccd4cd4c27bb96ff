//! A connection that has switched from HTTP to another protocol. Its stream is handed over, and a handler runs over
//! the stream.

use std::{convert::Infallible, fmt, pin::Pin, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

/// A socket with the layers above it, such as TLS.
pub trait IoStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> IoStream for S {}

/// The stream of one end after the switch.
pub struct UpgradedIo {
    pub stream: Box<dyn IoStream>,
    /// Bytes that were already read after the switch; they precede those of the stream.
    pub first: Bytes,
    /// Dropped with the stream, so that its listener can free the connection's slot.
    pub held: Option<oneshot::Sender<Infallible>>,
}

impl fmt::Debug for UpgradedIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched").field("first", &self.first.len()).finish_non_exhaustive()
    }
}

/// Sends the stream of a connection after a switch of protocols.
pub type UpgradeSender = oneshot::Sender<UpgradedIo>;

/// Handles the stream of a connection after a switch of protocols.
pub trait UpgradeHandler: 'static {
    /// Runs until the stream ends, for at most `longest`.
    fn run(self: Box<Self>, longest: Duration) -> Pin<Box<dyn Future<Output = TunnelEnd>>>;
}

/// The way in which an upgraded connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelEnd {
    /// The upstream has closed its side, so its work is done.
    Closed,
    /// The upstream's connection broke in the middle.
    Broken,
    /// This process has closed it. The upstream may still work on the bytes that it was sent.
    Cut(&'static str),
}

impl TunnelEnd {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Broken => "the upstream's connection broke",
            Self::Cut(reason) => reason,
        }
    }
}
