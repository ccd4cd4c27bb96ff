//! The one body type: where its bytes come from, and who is told of its end and lives until then.

mod broken;
pub mod fields;
pub mod observer;
mod source;
#[cfg(test)]
mod tests;
mod trailers;

use std::{
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
use smallvec::SmallVec;
use tokio::{sync::mpsc, time::Instant};

pub use self::{broken::BodyError, source::Piece, trailers::Trailers};
use self::{
    observer::{Held, Kept, Observer},
    source::{Framing, Live, Source, some},
};
use crate::course::Exchange;
use crate::parting::{Passage, Taker};

/// An answer on its way to a client.
pub type Reply = Response<Body>;

/// A request or response body.
pub struct Body {
    source: Source,
    trailers: Trailers,
    /// What hardly any body has.
    rare: Option<Box<Rare>>,
    /// Who came last is told first.
    observers: SmallVec<[Box<dyn Observer>; USUAL]>,
}

/// A body is moved with its request or answer from step to step, so what is seldom there is kept beside it.
#[derive(Default)]
struct Rare {
    /// What follows the head, where that is no body.
    passage: Option<Box<dyn Passage>>,
    /// Who waits for the client's stream, once the head has left.
    taker: Option<Taker>,
    /// It broke, and its connection is not told before what was given of it has left: the library throws away what it
    /// has not written, and a client that gets not one byte takes its request for one that never arrived.
    broken: Option<BodyError>,
}

/// Those of an answer to a client: the upstream's connection that it comes over, what counts its request, and the client's
/// connection.
const USUAL: usize = 3;
/// Bytes of a body that is read for its connection's sake only.
const SHORT: usize = 64 << 10;

impl Body {
    pub fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub fn whole(data: Bytes) -> Self {
        Self::of(Source::whole(data, None), Trailers::Drop)
    }

    /// Everything an upstream sent, already filtered.
    pub fn collected(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::of(Source::whole(data, trailers), Trailers::Pass)
    }

    /// From a client. Its trailers are dropped: a token sent as a trailer would arrive.
    ///
    /// `pause`: how long it may let us wait for a piece.
    pub fn from_client(incoming: Incoming, exchange: Rc<Exchange>, pause: Duration) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        let framing = if exchange.is_one_of_several() { Framing::Http2 } else { Framing::Http1 };
        Self::of(Source::live(Live::new(incoming, framing, pause).of(exchange)), Trailers::Drop)
    }

    /// `begun` was taken off its front, and is given again. The rest of it is not asked for before that.
    #[must_use]
    pub fn held_back(mut self, begun: Bytes) -> Self {
        match &mut self.source {
            Source::Live(live) => live.begin_with(begun),
            Source::Whole { data, .. } => *data = some(begun),
            Source::Piped(_) => {}
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
        match &self.source {
            Source::Live(live) => live.upload(),
            Source::Whole { .. } | Source::Piped(_) => None,
        }
    }

    /// Out of an answer in this version, whose pieces may let us wait for `idle` each.
    pub fn from_answer((incoming, version): (Incoming, Version), trailers: Trailers, idle: Duration) -> Self {
        let framing = if version == Version::HTTP_2 { Framing::Http2 } else { Framing::Http1 };
        Self::of(Source::live(Live::new(incoming, framing, idle)), trailers)
    }

    /// Looks at what has come of an answer already. One that is broken behind its head is better refused, while there is
    /// a head to say so with.
    pub fn look(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let looked = self.source.look(cx);
        match looked {
            Err(_) => self.tell(Observer::failed),
            Ok(()) if self.source.is_end() => self.tell(Observer::complete),
            Ok(()) => {}
        }
        looked
    }

    /// Fed by a task that goes on when nobody reads.
    pub fn piped(pieces: mpsc::Receiver<Piece>) -> Self {
        Self::of(Source::Piped(pieces), Trailers::Pass)
    }

    /// No body: the client's stream goes to who waits for it.
    pub fn parting(taker: Taker) -> Self {
        Self { rare: Some(Box::new(Rare { taker: Some(taker), ..Rare::default() })), ..Self::empty() }
    }

    /// Who that is.
    pub fn take_taker(&mut self) -> Option<Taker> {
        self.rare.as_mut()?.taker.take()
    }

    /// And this is what goes on there.
    #[must_use]
    pub fn passing(mut self, passage: impl Passage) -> Self {
        self.rare.get_or_insert_default().passage = Some(Box::new(passage));
        self
    }

    /// To be run by whoever keeps what it goes on under.
    pub fn take_passage(&mut self) -> Option<Box<dyn Passage>> {
        self.rare.as_mut()?.passage.take()
    }

    /// Those of a body that is here in full.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        match &self.source {
            Source::Whole { trailers, .. } => trailers.as_deref(),
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

    /// Keeps it until the body is dropped.
    pub fn keeping(self, kept: impl Sized + 'static) -> Self {
        self.telling(Box::new(Kept(kept)))
    }

    /// Keeps it until the body is complete, or dropped.
    pub fn holding(self, held: impl Sized + 'static) -> Self {
        self.telling(Box::new(Held(Some(held))))
    }

    /// What is here in full is given in pieces of at most so many bytes.
    #[must_use]
    pub fn in_pieces(mut self, most: usize) -> Self {
        if let Source::Whole { piece, .. } = &mut self.source {
            *piece = most;
        }
        self
    }

    /// Tells it how this goes and ends.
    pub fn telling(mut self, mut observer: Box<dyn Observer>) -> Self {
        if self.source.is_end() {
            observer.complete();
        }
        self.observers.push(observer);
        self
    }

    fn of(source: Source, trailers: Trailers) -> Self {
        Self { source, trailers, rare: None, observers: SmallVec::new() }
    }

    fn tell(&mut self, what: impl Fn(&mut dyn Observer)) {
        self.observers.iter_mut().rev().for_each(|observer| what(&mut **observer));
    }

    /// Says so, once all that was given before has left.
    fn breaks(
        &mut self,
        error: BodyError,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.observers.iter().all(|observer| observer.has_left(cx.waker())) {
            return Poll::Ready(Some(Err(error)));
        }
        self.rare.get_or_insert_default().broken = Some(error);
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
        for observer in &mut self.observers {
            if let Some(rest) = observer.settles() {
                rest.await;
            }
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(error) = this.rare.as_mut().and_then(|rare| rare.broken.take()) {
            return this.breaks(error, cx);
        }
        let frame = loop {
            let polled = this.source.poll(cx);
            this.tell(|observer| observer.asked(polled.is_ready()));
            match ready!(polled) {
                Some(Ok(frame)) => match this.trailers.filter(frame) {
                    Some(frame) => break Some(frame),
                    None => continue,
                },
                Some(Err(error)) => {
                    this.tell(Observer::failed);
                    return this.breaks(error, cx);
                }
                None => break None,
            }
        };
        let bytes = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        this.tell(|observer| observer.gives(bytes));
        // One that breaks is never complete, however much of it was given.
        if frame.is_none() || this.source.is_end() {
            this.tell(Observer::complete);
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
