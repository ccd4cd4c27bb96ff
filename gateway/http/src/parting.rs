//! A connection that has stopped speaking HTTP: how its stream is handed on, and what goes on over it.

use std::{convert::Infallible, fmt, pin::Pin, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

/// A socket, and all that lies above it.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// One end, once it has switched protocols.
pub struct Switched {
    pub stream: Box<dyn Stream>,
    /// What it said at once.
    pub first: Bytes,
    /// Dropped with the stream, for who still counts it.
    pub held: Option<oneshot::Sender<Infallible>>,
}

impl fmt::Debug for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched").field("first", &self.first.len()).finish_non_exhaustive()
    }
}

/// Where an end is given to.
pub type Taker = oneshot::Sender<Switched>;

/// What goes on where HTTP has ended.
pub trait Passage: 'static {
    /// Until it ends. `longest`: in any case.
    fn run(self: Box<Self>, longest: Duration) -> Pin<Box<dyn Future<Output = Ended>>>;
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The upstream has ended its side: it is done.
    Closed,
    /// Its connection broke: it has ended it, in the middle.
    Broke,
    /// We have ended it. The upstream may still be at work on what it was told.
    Cut(&'static str),
}

impl Ended {
    pub fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Broke => "the upstream's connection broke",
            Self::Cut(why) => why,
        }
    }
}
