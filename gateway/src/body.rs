//! The one body type: where its bytes come from, and what must live until the last of them.

mod source;
#[cfg(test)]
mod tests;

use std::{
    any::Any,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Response, Version,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};
use tokio::{sync::mpsc, time::Instant};

pub use self::source::Piece;
use self::source::{Framing, Live, Source};
use crate::{
    access::Entry,
    admin::metrics::Counted,
    listen::course::{Answering, Coming, Exchange},
    peers,
    steps::hygiene::Trailers,
    steps::limit::Permit,
    upstream::{
        link::Lend,
        tunnel::{Taker, Tunnel},
    },
};

/// An answer on its way to a client.
pub type Reply = Response<Body>;

/// A body broke.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("no byte within {0:?}")]
    Stalled(Duration),
    #[error("it was not here in full in time")]
    Overdue {
        /// It was waited for; else it was taken too slowly.
        awaited: bool,
    },
    #[error("it ended before it was complete")]
    Abandoned,
}

/// A request or response body.
pub struct Body {
    source: Source,
    trailers: Trailers,
    /// The upstream connection that the bytes come from: back to its pool at the end, closed if dropped before.
    lend: Option<Lend>,
    /// The same, of another gateway.
    peer: Option<peers::Lend>,
    /// The connection goes back by itself at the end.
    settles_itself: bool,
    /// What follows the head, where that is no body.
    tunnel: Option<Box<Tunnel>>,
    /// Who waits for the client's stream, once the head has left.
    taker: Option<Taker>,
    /// Counts the request as in flight until here.
    permit: Option<Rc<Permit>>,
    /// The same on its route.
    in_flight: Option<Counted>,
    /// Tells the connection that the answer goes to how its client takes it.
    answering: Option<Answering>,
    /// It broke, and its connection is not told before what was given of it has left: the library throws away what it
    /// has not written, and a client that gets not one byte takes its request for one that never arrived.
    broken: Option<BodyError>,
    /// The same of the request that comes from it.
    exchange: Option<Rc<Exchange>>,
    /// What will be told of the request that this answers.
    entry: Option<Box<Entry>>,
    /// What else is to live as long.
    kept: Option<Box<dyn Any>>,
}

/// How long an upload may go on after its answer is complete.
const UNFENCED_REST: Duration = Duration::from_secs(30);
/// The same while others wait for the key.
const FENCED_REST: Duration = Duration::from_millis(100);
/// Bytes of a body that is read for its connection's sake only.
const SHORT: usize = 64 << 10;

impl Body {
    pub fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub fn whole(data: Bytes) -> Self {
        Self::of(Source::Whole { data: some(data), trailers: None }, Trailers::Drop)
    }

    /// Everything an upstream sent, already filtered.
    pub fn collected(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::of(Source::Whole { data: some(data), trailers }, Trailers::Pass)
    }

    /// From a client. Its trailers are dropped: a token sent as a trailer would arrive.
    ///
    /// `pause`: how long it may let us wait for a piece.
    pub fn from_client(incoming: Incoming, exchange: Rc<Exchange>, pause: Duration) -> Self {
        let framing = if exchange.is_one_of_several() { Framing::Http2 } else { Framing::Http1 };
        let body = Self::of(Source::Live(Live::new(incoming, framing, pause)), Trailers::Drop);
        Self { exchange: Some(exchange), ..body }
    }

    /// `begun` was taken off its front, and is given again. The rest of it is not asked for before that.
    #[must_use]
    pub fn held_back(mut self, begun: Bytes) -> Self {
        match &mut self.source {
            Source::Live(live) => live.begin_with(begun),
            Source::Whole { data, .. } => *data = some(begun),
            Source::Piped(_) => {}
        }
        if let Some(exchange) = &self.exchange {
            exchange.comes(Coming::HeldBack);
        }
        self
    }

    /// However little of it is left: beyond that it fails.
    pub fn has_to_be_here_by(&mut self, by: Instant) {
        if let Source::Live(live) = &mut self.source {
            live.by(by);
        }
    }

    /// When that is.
    pub fn is_due(&self) -> Option<Instant> {
        match &self.source {
            Source::Live(live) => live.is_due(),
            Source::Whole { .. } | Source::Piped(_) => None,
        }
    }

    /// What a client is still sending of it, for who sends it on meanwhile.
    pub fn upload(&self) -> Option<Rc<Exchange>> {
        self.exchange.clone().filter(|_| !self.source.is_end())
    }

    /// From an upstream, which may pause for `idle` between two pieces.
    ///
    /// `fenced`: whoever reads it to the end calls [`Body::settled`].
    pub fn from_upstream(
        (incoming, version): (Incoming, Version),
        trailers: Trailers,
        idle: Duration,
        lend: Lend,
        fenced: bool,
    ) -> Self {
        let framing = if version == Version::HTTP_2 { Framing::Http2 } else { Framing::Http1 };
        let mut body = Self::of(Source::Live(Live::new(incoming, framing, idle)), trailers);
        body.lend = Some(lend);
        body.settles_itself = !fenced;
        if body.source.is_end() {
            body.finish();
        }
        body
    }

    /// Looks at what has come of an answer already. One that is broken behind its head is better refused, while there is
    /// a head to say so with.
    pub fn look(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let looked = self.source.look(cx);
        if let (Err(_), Some(lend)) = (&looked, &self.lend) {
            lend.failed();
        }
        if looked.is_ok() && self.source.is_end() {
            self.finish();
        }
        looked
    }

    /// From another gateway, as it gives it to its client; the connection goes back by itself.
    pub fn from_gateway(incoming: Incoming, trailers: Trailers, idle: Duration, lend: peers::Lend) -> Self {
        let mut body = Self::of(Source::Live(Live::new(incoming, Framing::Http1, idle)), trailers);
        body.peer = Some(lend);
        if body.source.is_end() {
            body.finish();
        }
        body
    }

    /// Fed by a task that goes on when nobody reads.
    pub fn piped(pieces: mpsc::Receiver<Piece>) -> Self {
        Self::of(Source::Piped(pieces), Trailers::Pass)
    }

    /// No body: the client's stream goes to who waits for it.
    pub fn parting(taker: Taker) -> Self {
        Self { taker: Some(taker), ..Self::empty() }
    }

    /// And this is who does.
    pub fn tunnel(mut self, tunnel: Tunnel) -> Self {
        self.tunnel = Some(Box::new(tunnel));
        self
    }

    /// To be run by whoever keeps what it goes on under.
    pub fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Those of a body that is here in full.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        match &self.source {
            Source::Whole { trailers, .. } => trailers.as_ref(),
            Source::Live(_) | Source::Piped(_) => None,
        }
    }

    /// All of it, where it is here in full.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Whole { data, .. } => Some(data.as_deref().unwrap_or_default()),
            Source::Live(_) | Source::Piped(_) => None,
        }
    }

    /// The same bytes once more, where it is here in full.
    pub fn again(&self) -> Option<Self> {
        match &self.source {
            Source::Whole { data, .. } => Some(Self::whole(data.clone().unwrap_or_default())),
            source if source.is_end() => Some(Self::empty()),
            Source::Live(_) | Source::Piped(_) => None,
        }
    }

    pub fn keeping(mut self, kept: impl Any) -> Self {
        self.kept = Some(Box::new(kept));
        self
    }

    pub fn holding(mut self, permit: Rc<Permit>) -> Self {
        self.permit = Some(permit);
        self
    }

    pub fn counted(mut self, in_flight: Option<Counted>) -> Self {
        self.in_flight = in_flight.filter(|_| !self.source.is_end());
        self
    }

    /// An answer that goes to the client of this connection.
    pub fn answering(mut self, answering: Answering) -> Self {
        if let Some(taker) = self.taker.take() {
            answering.parts(taker);
        }
        answering.is_to_leave();
        self.answering = Some(answering);
        self
    }

    /// The answer to a request that is to be told of.
    pub fn entered(mut self, entry: Entry) -> Self {
        self.entry = Some(Box::new(entry));
        if self.source.is_end() {
            self.finish();
        }
        self
    }

    fn of(source: Source, trailers: Trailers) -> Self {
        Self {
            source,
            trailers,
            lend: None,
            peer: None,
            settles_itself: false,
            tunnel: None,
            taker: None,
            permit: None,
            in_flight: None,
            answering: None,
            broken: None,
            exchange: None,
            entry: None,
            kept: None,
        }
    }

    /// The last byte has passed; who holds a lock waits for the connection itself ([`Body::settled`]).
    fn finish(&mut self) {
        self.permit = None;
        self.in_flight = None;
        if let Some(exchange) = &self.exchange {
            exchange.comes(Coming::Over);
        }
        if let Some(entry) = &mut self.entry {
            entry.is_complete();
        }
        if let Some(lend) = self.peer.take() {
            lend.give_back();
        }
        if self.settles_itself
            && let Some(lend) = self.lend.take()
            && let Err(lend) = lend.give_back_if_over()
        {
            tokio::task::spawn_local(lend.give_back(UNFENCED_REST));
        }
    }

    /// Says so, once all that was given before has left.
    fn breaks(
        &mut self,
        error: BodyError,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.answering.as_ref().is_none_or(|answering| answering.has_left(cx.waker())) {
            return Poll::Ready(Some(Err(error)));
        }
        self.broken = Some(error);
        Poll::Pending
    }

    /// Reads a short one to its end; `None` where it breaks, or is not short.
    pub async fn spent(mut self) -> Option<Self> {
        let mut left = SHORT;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await {
            left = left.checked_sub(frame.ok()?.data_ref().map_or(0, Bytes::len))?;
        }
        Some(self)
    }

    /// After the last byte: waits until no byte of the *request* can leave any more either.
    pub async fn settled(mut self) {
        if let Some(lend) = self.lend.take()
            && let Err(lend) = lend.give_back_if_over()
        {
            lend.give_back(FENCED_REST).await;
        }
    }
}

/// An empty piece is none: a body of no bytes is at its end before it is read.
fn some(data: Bytes) -> Option<Bytes> {
    (!data.is_empty()).then_some(data)
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return this.breaks(error, cx);
        }
        let frame = loop {
            let polled = this.source.poll(cx);
            if let Some(answering) = &this.answering {
                answering.asked(polled.is_ready());
            }
            if let Some(exchange) = &this.exchange {
                exchange.comes(if polled.is_ready() {
                    Coming::Here(Instant::now())
                } else {
                    Coming::Awaited
                });
            }
            match ready!(polled) {
                Some(Ok(frame)) => match this.trailers.filter(frame) {
                    Some(frame) => break Some(Ok(frame)),
                    None => continue,
                },
                other => break other,
            }
        };
        if let (Some(Err(_)), Some(lend)) = (&frame, &this.lend) {
            lend.failed();
        }
        if let (Some(entry), Some(Ok(frame))) = (&mut this.entry, &frame) {
            entry.sends(frame.data_ref().map_or(0, Bytes::len));
        }
        // One that breaks is never complete, however much of it was given.
        if frame.is_none() || matches!(frame, Some(Ok(_))) && this.source.is_end() {
            this.finish();
        }
        if let (Some(Err(error)), Some(exchange)) = (&frame, &this.exchange) {
            let overdue = matches!(error, BodyError::Overdue { .. });
            exchange.comes(if overdue { Coming::Overdue } else { Coming::Broken });
            let waited = matches!(error, BodyError::Stalled(_) | BodyError::Overdue { awaited: true });
            exchange.stalled.set(waited);
        }
        match frame {
            Some(Err(error)) => this.breaks(error, cx),
            frame => {
                if let Some(answering) = &this.answering {
                    answering.is_to_leave();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
