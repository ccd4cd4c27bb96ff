//! A connection that has switched from HTTP to another protocol: its stream is handed over, and a handler runs over
//! it.

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
    /// Bytes that came directly after the switch.
    pub first: Bytes,
    /// Dropped with the stream, so that its listener can stop counting it.
    pub held: Option<oneshot::Sender<Infallible>>,
}

impl fmt::Debug for UpgradedIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched").field("first", &self.first.len()).finish_non_exhaustive()
    }
}

/// The receiver of such a stream.
pub type UpgradeSender = oneshot::Sender<UpgradedIo>;

/// The traffic after a switch of protocols.
pub trait UpgradeHandler: 'static {
    /// Runs until the end, and for `longest` at most.
    fn run(self: Box<Self>, longest: Duration) -> Pin<Box<dyn Future<Output = TunnelEnd>>>;
}

/// How an upgraded connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelEnd {
    /// The upstream has closed its side, so it is done.
    Closed,
    /// The upstream's connection broke in the middle.
    Broken,
    /// This side has cut it. The upstream may still work on the bytes that it was sent.
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
