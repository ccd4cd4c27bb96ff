//! The one body type: where its bytes come from, and what must live until the last of them.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Response,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};
use tokio::{
    sync::mpsc,
    time::{Sleep, sleep},
};

use crate::{
    access::Entry,
    listen::course::{Answering, Exchange},
    steps::hygiene::Trailers,
    steps::limit::Permit,
    upstream::link::Lend,
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
    #[error("the exchange was given up")]
    Abandoned,
}

/// A request or response body.
pub struct Body {
    source: Source,
    trailers: Trailers,
    /// The upstream connection that the bytes come from: back to its pool at the end, closed if dropped before.
    lend: Option<Lend>,
    /// The connection goes back by itself at the end.
    settles_itself: bool,
    /// Counts the request as in flight until here.
    permit: Option<Rc<Permit>>,
    /// Tells the connection that the answer goes to how its client takes it.
    answering: Option<Answering>,
    /// The same of the request that comes from it.
    exchange: Option<Rc<Exchange>>,
    /// What will be told of the request that this answers.
    entry: Option<Box<Entry>>,
}

/// How long an upload may go on after its answer is complete.
const UNFENCED_REST: Duration = Duration::from_secs(30);
/// The same while others wait for the key.
const FENCED_REST: Duration = Duration::from_millis(100);

enum Source {
    Whole { data: Option<Bytes>, trailers: Option<HeaderMap> },
    Live { incoming: Incoming, stall: Option<Stall> },
    Piped(mpsc::Receiver<Piece>),
}

/// What a task feeds into a body. A feed that ends without [`Piece::End`] was given up, and the client must see that
/// its answer is not complete.
pub enum Piece {
    Frame(Frame<Bytes>),
    End,
}

/// How long to wait for the next bytes; the timer is made when there is something to wait for.
struct Stall {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

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
        let stall = Some(Stall { limit: pause, timer: None });
        let body = Self::of(Source::Live { incoming, stall }, Trailers::Drop);
        Self { exchange: Some(exchange), ..body }
    }

    /// From an upstream, which may pause for `idle` between two pieces.
    ///
    /// `fenced`: whoever reads it to the end calls [`Body::settled`].
    pub fn from_upstream(
        incoming: Incoming,
        trailers: Trailers,
        idle: Duration,
        lend: Lend,
        fenced: bool,
    ) -> Self {
        let stall = Some(Stall { limit: idle, timer: None });
        let mut body = Self::of(Source::Live { incoming, stall }, trailers);
        body.lend = Some(lend);
        body.settles_itself = !fenced;
        if body.source.is_end() {
            body.finish();
        }
        body
    }

    /// Fed by a task that goes on when nobody reads.
    pub fn piped(pieces: mpsc::Receiver<Piece>) -> Self {
        Self::of(Source::Piped(pieces), Trailers::Pass)
    }

    /// All of it, where it is here in full.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Whole { data, .. } => Some(data.as_deref().unwrap_or_default()),
            Source::Live { .. } | Source::Piped(_) => None,
        }
    }

    /// The same bytes once more, where it is here in full.
    pub fn again(&self) -> Option<Self> {
        match &self.source {
            Source::Whole { data, .. } => Some(Self::whole(data.clone().unwrap_or_default())),
            Source::Live { .. } | Source::Piped(_) => None,
        }
    }

    pub fn holding(mut self, permit: Rc<Permit>) -> Self {
        self.permit = Some(permit);
        self
    }

    /// An answer that goes to the client of this connection.
    pub fn answering(mut self, answering: Answering) -> Self {
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
            settles_itself: false,
            permit: None,
            answering: None,
            exchange: None,
            entry: None,
        }
    }

    /// The last byte has passed; who holds a lock waits for the connection itself ([`Body::settled`]).
    fn finish(&mut self) {
        self.permit = None;
        if let Some(entry) = &mut self.entry {
            entry.is_complete();
        }
        if self.settles_itself
            && let Some(lend) = self.lend.take()
        {
            tokio::task::spawn_local(lend.give_back(UNFENCED_REST));
        }
    }

    /// After the last byte: waits until no byte of the *request* can leave any more either.
    pub async fn settled(mut self) {
        if let Some(lend) = self.lend.take() {
            lend.give_back(FENCED_REST).await;
        }
    }
}

/// An empty piece is none: a body of no bytes is at its end before it is read.
fn some(data: Bytes) -> Option<Bytes> {
    (!data.is_empty()).then_some(data)
}

impl Source {
    fn is_end(&self) -> bool {
        match self {
            Self::Whole { data, trailers } => data.is_none() && trailers.is_none(),
            Self::Live { incoming, .. } => incoming.is_end_stream(),
            Self::Piped(_) => false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Whole { data, trailers } => Poll::Ready(match data.take() {
                Some(data) => Some(Ok(Frame::data(data))),
                None => trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            }),
            Self::Live { incoming, stall } => match (Pin::new(incoming).poll_frame(cx), stall) {
                (Poll::Pending, Some(stall)) => stall.poll(cx).map(|error| Some(Err(error))),
                (polled, Some(stall)) => {
                    stall.timer = None;
                    polled.map_err(BodyError::Http)
                }
                (polled, None) => polled.map_err(BodyError::Http),
            },
            Self::Piped(pieces) => Poll::Ready(match ready!(pieces.poll_recv(cx)) {
                Some(Piece::Frame(frame)) => Some(Ok(frame)),
                Some(Piece::End) => None,
                None => Some(Err(BodyError::Abandoned)),
            }),
        }
    }
}

impl Stall {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(BodyError::Stalled(self.limit))
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
        let frame = loop {
            let polled = this.source.poll(cx);
            if let Some(answering) = &this.answering {
                answering.asked(polled.is_ready());
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
        if let (Some(Err(BodyError::Stalled(_))), Some(exchange)) = (&frame, &this.exchange) {
            exchange.stalled.set(true);
        }
        if let (Some(entry), Some(Ok(frame))) = (&mut this.entry, &frame) {
            entry.sends(frame.data_ref().map_or(0, Bytes::len));
        }
        if frame.is_none() || this.source.is_end() {
            this.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            // Trailers need a body without a length.
            Source::Whole { trailers: Some(_), .. } | Source::Piped(_) => SizeHint::default(),
            Source::Whole { data, .. } => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Source::Live { incoming, .. } => incoming.size_hint(),
        }
    }
}
