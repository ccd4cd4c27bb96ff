//! The sources of a body's bytes, and how each distinguishes a complete body from a broken one.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    HeaderMap,
    body::{Body as _, Frame, Incoming, SizeHint},
};
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep, sleep_until},
};

use super::error::BodyError;
use crate::connection_state::{RequestBodyState, ServerExchange};

pub(super) enum BodyInner {
    /// A body in memory, passed on in chunks of at most `piece` bytes.
    Whole {
        data: Option<Bytes>,
        /// In a box, because few bodies have trailers.
        trailers: Option<Box<HeaderMap>>,
        piece: usize,
    },
    Live(Box<IncomingBody>),
    Piped(mpsc::Receiver<BodyChunk>),
}

/// A part of a body that a task sends. If the channel closes without [`BodyChunk::End`], the task has given up, and the
/// client must see that its response is not complete.
pub enum BodyChunk {
    Frame(Frame<Bytes>),
    End,
}

/// A body that arrives over a connection.
pub(super) struct IncomingBody {
    /// A chunk that was read before and put back; it comes first.
    begun: Option<Frame<Bytes>>,
    /// Set when the library has reported the end; after that the library is not polled again.
    end: Option<BodyEnd>,
    incoming: Incoming,
    stall: BodyIdleTimeout,
    /// The moment by which the whole body must have arrived.
    deadline: Option<Instant>,
    framing: BodyEndDetection,
    /// The exchange of an upload, which records how the upload proceeds.
    exchange: Option<Rc<ServerExchange>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEnd {
    Whole,
    Abandoned,
}

/// Returns `None` for an empty chunk, so that an empty body is at its end before it is read.
pub(super) fn non_empty(data: Bytes) -> Option<Bytes> {
    (!data.is_empty()).then_some(data)
}

/// The way to detect the end of a body. The end that the HTTP library reports is not enough (hyper 1.12, h2 0.4):
///
/// - HTTP/1.1 with a length: hyper counts, and its size hint at the end is the number of missing bytes.
/// - HTTP/1.1 in chunks: hyper ends the body when it has read the last chunk. If the connection breaks or is dropped
///   before that, it inserts an error (`SenderDropGuard` in `proto/h1/dispatch.rs`).
/// - HTTP/2: a reset with `NO_ERROR` ends the body as if it were complete (`body/incoming.rs`), and a client can send
///   that at any time. Only the state of the stream shows whether `END_STREAM` was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEndDetection {
    Http1,
    Http2,
}

/// The time limit for the next bytes. The timer is created only when the body has to wait.
struct BodyIdleTimeout {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BodyInner {
    pub(super) fn from_bytes(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::Whole { data: non_empty(data), trailers: trailers.map(Box::new), piece: usize::MAX }
    }

    pub(super) fn from_live_body(live: IncomingBody) -> Self {
        Self::Live(Box::new(live))
    }

    pub(super) fn is_end(&self) -> bool {
        match self {
            Self::Whole { data, trailers, .. } => data.is_none() && trailers.is_none(),
            Self::Live(live) => live.is_end(),
            Self::Piped(_) => false,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Whole { data, trailers, piece } => Poll::Ready(match data {
                Some(rest) if rest.len() > *piece => Some(Ok(Frame::data(rest.split_to(*piece)))),
                Some(_) => data.take().map(|data| Ok(Frame::data(data))),
                None => trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))),
            }),
            Self::Live(live) => {
                let polled = live.poll(cx);
                live.record_upload(&polled);
                polled
            }
            Self::Piped(pieces) => Poll::Ready(match ready!(pieces.poll_recv(cx)) {
                Some(BodyChunk::Frame(frame)) => Some(Ok(frame)),
                Some(BodyChunk::End) => None,
                None => Some(Err(BodyError::Abandoned)),
            }),
        }
    }

    /// Reads one chunk if it has already arrived, and keeps it for the reader. Returns an error if the body is already
    /// broken.
    pub(super) fn prefetch(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let Self::Live(live) = self else { return Ok(()) };
        if live.begun.is_none()
            && let Poll::Ready(Some(frame)) = live.poll(cx)
        {
            live.begun = Some(frame?);
        }
        Ok(())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            // Trailers are sent only after a body without a length, so no length is announced.
            Self::Whole { trailers: Some(_), .. } | Self::Piped(_) => SizeHint::default(),
            Self::Whole { data, .. } => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Self::Live(live) => live.size_hint(),
        }
    }
}

impl IncomingBody {
    /// `pause` is the time limit between two chunks.
    pub(super) fn new(incoming: Incoming, framing: BodyEndDetection, pause: Duration) -> Self {
        let stall = BodyIdleTimeout { limit: pause, timer: None };
        Self { begun: None, end: None, incoming, stall, deadline: None, framing, exchange: None }
    }

    /// Sets the exchange that records the progress of a request's body.
    pub(super) fn with_exchange(self, exchange: Rc<ServerExchange>) -> Self {
        Self { exchange: Some(exchange), ..self }
    }

    /// Puts `begun`, which was read before, back to the front.
    pub(super) fn prepend(&mut self, begun: Bytes) {
        self.begun = non_empty(begun).map(Frame::data);
        if let Some(exchange) = &self.exchange {
            exchange.set_body_state(RequestBodyState::HeldBack);
        }
    }

    /// The exchange of a request body that is still being received.
    pub(super) fn ongoing_upload(&self) -> Option<Rc<ServerExchange>> {
        self.exchange.clone().filter(|_| !self.is_end())
    }

    pub(super) fn set_deadline(&mut self, by: Instant) {
        self.deadline = Some(by);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.deadline.is_some_and(|by| by <= Instant::now()) {
            return Poll::Ready(Some(Err(BodyError::Overdue { awaited: self.stall.timer.is_some() })));
        }
        if let Some(begun) = self.begun.take() {
            return Poll::Ready(Some(Ok(begun)));
        }
        match self.end {
            Some(BodyEnd::Whole) => return Poll::Ready(None),
            Some(BodyEnd::Abandoned) => return Poll::Ready(Some(Err(BodyError::Abandoned))),
            None => {}
        }
        let Poll::Ready(polled) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            return self.stall.poll_expired(cx, self.deadline).map(|error| Some(Err(error)));
        };
        self.stall.timer = None;
        Poll::Ready(match polled {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => {
                self.end = Some(BodyEnd::Abandoned);
                Some(Err(BodyError::Http(error)))
            }
            None if self.is_fully_received() => {
                self.end = Some(BodyEnd::Whole);
                None
            }
            None => {
                self.end = Some(BodyEnd::Abandoned);
                Some(Err(BodyError::Abandoned))
            }
        })
    }

    fn record_upload(&self, polled: &Poll<Option<Result<Frame<Bytes>, BodyError>>>) {
        let Some(exchange) = &self.exchange else { return };
        exchange.set_body_state(match polled {
            Poll::Pending => RequestBodyState::Awaited,
            Poll::Ready(None) => RequestBodyState::Complete,
            Poll::Ready(Some(Ok(_))) if self.is_end() => RequestBodyState::Complete,
            Poll::Ready(Some(Ok(_))) => RequestBodyState::Receiving(Instant::now()),
            Poll::Ready(Some(Err(BodyError::Overdue { .. }))) => RequestBodyState::Overdue,
            Poll::Ready(Some(Err(_))) => RequestBodyState::Broken,
        });
        if let Poll::Ready(Some(Err(error))) = polled {
            let waited = matches!(error, BodyError::Stalled(_) | BodyError::Overdue { awaited: true });
            exchange.stalled.set(waited);
        }
    }

    /// True if all of the body was passed on. A broken body has no end.
    fn is_end(&self) -> bool {
        self.begun.is_none()
            && match self.end {
                Some(end) => end == BodyEnd::Whole,
                None => self.incoming.is_end_stream(),
            }
    }

    /// True if the other side has really sent the end that the library reports.
    fn is_fully_received(&self) -> bool {
        match self.framing {
            BodyEndDetection::Http1 => self.incoming.size_hint().exact().is_none_or(|left| left == 0),
            BodyEndDetection::Http2 => self.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let begun = self.begun.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let mut hint = self.incoming.size_hint();
        if let (1.., Some(left)) = (begun, hint.exact()) {
            hint.set_exact(left + begun as u64);
        }
        hint
    }
}

impl BodyIdleTimeout {
    fn poll_expired(&mut self, cx: &mut Context<'_>, by: Option<Instant>) -> Poll<BodyError> {
        let due = || {
            let due = Instant::now() + self.limit;
            Box::pin(sleep_until(by.map_or(due, |by| by.min(due))))
        };
        let timer = self.timer.get_or_insert_with(due);
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(match by {
            Some(by) if by <= Instant::now() => BodyError::Overdue { awaited: true },
            _ => BodyError::Stalled(self.limit),
        })
    }
}
