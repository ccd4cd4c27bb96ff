//! The one body type: a source of bytes, and observers that are notified of the end of the body and live until then.

mod error;
pub mod hop_by_hop;
mod source;
#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use fencegate_policies::plan::CommonServingPlan;
use hyper::{
    HeaderMap, Response, Version,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};
use smallvec::SmallVec;
use tokio::{sync::mpsc, time::Instant};

pub use self::{error::BodyError, source::BodyChunk};
use self::{
    hop_by_hop::strip_hop_by_hop,
    source::{BodyEndDetection, BodyInner, IncomingBody, non_empty},
};
use crate::{
    connection_state::ServerExchange,
    upgrade::{UpgradeHandler, UpgradeSender},
};

/// A response on its way to a client.
pub type Reply = Response<Body>;

/// A request or response body.
pub struct Body {
    source: BodyInner,
    trailers: TrailerPolicy,
    /// Parts that few bodies have; `None` for most bodies.
    extras: Option<Box<BodyExtras>>,
    /// The observers; the last added one is notified first.
    observers: SmallVec<[Box<dyn BodyObserver>; USUAL]>,
}

/// The rare parts of a body, kept in a box: a body is moved through many steps, so it has to be small.
#[derive(Default)]
struct BodyExtras {
    /// Handles the stream that follows the head after a switch of protocols.
    upgrade_handler: Option<Box<dyn UpgradeHandler>>,
    /// Receives the client's stream once the head has been sent.
    upgrade_sender: Option<UpgradeSender>,
    /// The error of a broken body, held back until all bytes before it are sent. The HTTP library discards its
    /// unwritten bytes when it gets an error, and a client that gets no byte assumes that its request never arrived.
    broken: Option<BodyError>,
}

/// The number of observers of a usual response: the upstream's connection, the count of its request, and the client's
/// connection.
const USUAL: usize = 3;
/// The most bytes of a body that are read only to keep its connection.
const SHORT: usize = 64 << 10;

impl Body {
    pub fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }

    pub fn from_bytes(data: Bytes) -> Self {
        Self::new(BodyInner::from_bytes(data, None), TrailerPolicy::Drop)
    }

    /// A complete response body of an upstream, whose trailers are already filtered.
    pub fn with_trailers(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::new(BodyInner::from_bytes(data, trailers), TrailerPolicy::Pass)
    }

    /// The body of a client's request. Its trailers are dropped, because a client could send a token in them. `pause`
    /// is the time limit for each chunk.
    pub fn from_client(incoming: Incoming, exchange: Rc<ServerExchange>, pause: Duration) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        let framing =
            if exchange.is_multiplexed() { BodyEndDetection::Http2 } else { BodyEndDetection::Http1 };
        Self::new(
            BodyInner::from_live_body(IncomingBody::new(incoming, framing, pause).with_exchange(exchange)),
            TrailerPolicy::Drop,
        )
    }

    /// Puts `begun`, which was read before, back to the front. The rest is read only after `begun` was taken.
    #[must_use]
    pub fn prepend(mut self, begun: Bytes) -> Self {
        match &mut self.source {
            BodyInner::Live(live) => live.prepend(begun),
            BodyInner::Whole { data, .. } => *data = non_empty(begun),
            BodyInner::Piped(_) => {}
        }
        self
    }

    /// Sets the deadline of the whole body. After it the body fails, even if little is missing.
    pub fn set_deadline(&mut self, by: Instant) {
        if let BodyInner::Live(live) = &mut self.source {
            live.set_deadline(by);
        }
    }

    /// The deadline of the whole body.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.source {
            BodyInner::Live(live) => live.deadline(),
            BodyInner::Whole { .. } | BodyInner::Piped(_) => None,
        }
    }

    /// The exchange of a request body that is still being received; `None` for any other body.
    pub fn upload_exchange(&self) -> Option<Rc<ServerExchange>> {
        match &self.source {
            BodyInner::Live(live) => live.ongoing_upload(),
            BodyInner::Whole { .. } | BodyInner::Piped(_) => None,
        }
    }

    /// The body of a response in this version of HTTP. `idle` is the time limit for each chunk.
    pub fn from_upstream(
        incoming: Incoming,
        version: Version,
        trailers: TrailerPolicy,
        idle: Duration,
    ) -> Self {
        let framing =
            if version == Version::HTTP_2 { BodyEndDetection::Http2 } else { BodyEndDetection::Http1 };
        Self::new(BodyInner::from_live_body(IncomingBody::new(incoming, framing, idle)), trailers)
    }

    /// Reads a part of a response that has already arrived. If the response breaks directly after its head, the
    /// caller can still send the client another head.
    pub fn prefetch(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let looked = self.source.prefetch(cx);
        match looked {
            Err(_) => self.notify_observers(BodyObserver::on_error),
            Ok(()) if self.source.is_end() => self.notify_observers(BodyObserver::on_end),
            Ok(()) => {}
        }
        looked
    }

    /// A body whose chunks come from a task. The task goes on even if the body is not read.
    pub fn from_channel(pieces: mpsc::Receiver<BodyChunk>) -> Self {
        Self::new(BodyInner::Piped(pieces), TrailerPolicy::Pass)
    }

    /// An empty body after which the stream of the client is sent to `upgrade_sender`.
    pub fn for_upgrade(upgrade_sender: UpgradeSender) -> Self {
        Self {
            extras: Some(Box::new(BodyExtras {
                upgrade_sender: Some(upgrade_sender),
                ..BodyExtras::default()
            })),
            ..Self::empty()
        }
    }

    /// Takes the sender that receives the client's stream.
    pub(crate) fn take_upgrade_sender(&mut self) -> Option<UpgradeSender> {
        self.extras.as_mut()?.upgrade_sender.take()
    }

    /// Sets the handler that runs over the upgraded stream.
    #[must_use]
    pub fn with_upgrade_handler(mut self, passage: impl UpgradeHandler) -> Self {
        self.extras.get_or_insert_default().upgrade_handler = Some(Box::new(passage));
        self
    }

    /// Takes the handler of the upgraded stream. The caller runs it, and holds the lock for as long as it runs.
    pub fn take_upgrade_handler(&mut self) -> Option<Box<dyn UpgradeHandler>> {
        self.extras.as_mut()?.upgrade_handler.take()
    }

    /// The trailers of a body that is in memory.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        match &self.source {
            BodyInner::Whole { trailers, .. } => trailers.as_deref(),
            BodyInner::Live(_) | BodyInner::Piped(_) => None,
        }
    }

    /// The bytes of a body that is in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.source {
            BodyInner::Whole { data, .. } => Some(data.as_deref().unwrap_or_default()),
            BodyInner::Live(_) | BodyInner::Piped(_) => None,
        }
    }

    /// A second body with the same bytes, if this one is in memory.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.source {
            BodyInner::Whole { data, .. } => Some(Self::from_bytes(data.clone().unwrap_or_default())),
            source if source.is_end() => Some(Self::empty()),
            BodyInner::Live(_) | BodyInner::Piped(_) => None,
        }
    }

    /// Keeps a value until the body is dropped.
    pub fn keep_until_dropped(self, kept: impl Sized + 'static) -> Self {
        self.with_observer(Box::new(DropWithBody(kept)))
    }

    /// Keeps a value until the body is complete, or dropped.
    pub fn keep_until_complete(self, held: impl Sized + 'static) -> Self {
        self.with_observer(Box::new(DropOnComplete(Some(held))))
    }

    /// Sets the largest chunk of a body in memory: it is passed on in chunks of at most `most` bytes.
    #[must_use]
    pub fn with_max_chunk(mut self, most: usize) -> Self {
        if let BodyInner::Whole { piece, .. } = &mut self.source {
            *piece = most;
        }
        self
    }

    /// Adds an observer.
    pub fn with_observer(mut self, mut observer: Box<dyn BodyObserver>) -> Self {
        if self.source.is_end() {
            observer.on_end();
        }
        self.observers.push(observer);
        self
    }

    fn new(source: BodyInner, trailers: TrailerPolicy) -> Self {
        Self { source, trailers, extras: None, observers: SmallVec::new() }
    }

    fn notify_observers(&mut self, what: impl Fn(&mut dyn BodyObserver)) {
        self.observers.iter_mut().rev().for_each(|observer| what(&mut **observer));
    }

    /// Returns the error once all bytes before it are sent; keeps it until then.
    fn fail_after_flush(
        &mut self,
        error: BodyError,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.observers.iter().all(|observer| observer.check_flushed(cx.waker())) {
            return Poll::Ready(Some(Err(error)));
        }
        self.extras.get_or_insert_default().broken = Some(error);
        Poll::Pending
    }

    /// Reads a short body to its end; `None` if it breaks or is too long.
    pub async fn buffer_if_short(mut self) -> Option<Self> {
        let mut left = SHORT;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await {
            left = left.checked_sub(frame.ok()?.data_ref().map_or(0, Bytes::len))?;
        }
        Some(self)
    }

    /// Waits, after the last byte of this response, until no byte of its *request* can be sent any more either.
    pub async fn wait_request_writes_settled(mut self) {
        for observer in &mut self.observers {
            if let Some(rest) = observer.settle_request_writes() {
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
        if let Some(error) = this.extras.as_mut().and_then(|rare| rare.broken.take()) {
            return this.fail_after_flush(error, cx);
        }
        let frame = loop {
            let polled = this.source.poll(cx);
            this.notify_observers(|observer| observer.on_poll(polled.is_ready()));
            match ready!(polled) {
                Some(Ok(frame)) => match this.trailers.filter(frame) {
                    Some(frame) => break Some(frame),
                    None => continue,
                },
                Some(Err(error)) => {
                    this.notify_observers(BodyObserver::on_error);
                    return this.fail_after_flush(error, cx);
                }
                None => break None,
            }
        };
        let bytes = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        this.notify_observers(|observer| observer.on_data(bytes));
        // The end is not reported for a body that breaks, even if all its bytes were passed on.
        if frame.is_none() || this.source.is_end() {
            this.notify_observers(BodyObserver::on_end);
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

/// The treatment of a body's trailers.
#[derive(Clone)]
pub enum TrailerPolicy {
    /// For a client's body: all trailers are dropped, because the service could take a token among them for one of
    /// this proxy.
    Drop,
    /// For an upstream's body: the trailers pass, without the fields that only this proxy writes.
    Clean(Rc<Arc<CommonServingPlan>>),
    /// For trailers that were filtered already: they pass.
    Pass,
}

impl TrailerPolicy {
    /// Filters a frame; `None` for a frame that must not pass.
    pub fn filter(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match (self, frame.into_trailers()) {
            (_, Err(data)) => Some(data),
            (Self::Pass, Ok(trailers)) => Some(Frame::trailers(trailers)),
            (Self::Drop, Ok(_)) => None,
            (Self::Clean(plan), Ok(mut trailers)) => {
                strip_hop_by_hop(&mut trailers, &plan.fields);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
        }
    }
}

/// An observer of a body. Each method does nothing by default.
pub trait BodyObserver: 'static {
    /// The source was polled for a chunk. `is_here` is true if it had a chunk or the end; otherwise the source has to
    /// wait.
    fn on_poll(&mut self, _is_here: bool) {}

    /// A chunk of this many bytes is passed on. Called with 0 for trailers and for the end.
    fn on_data(&mut self, _bytes: usize) {}

    /// All of the body was passed on. This may be called twice, and is never called for a body that breaks.
    fn on_end(&mut self) {}

    /// The source has failed, so the body breaks.
    fn on_error(&mut self) {}

    /// True if all bytes that were passed on are sent, so that an error may be reported. Otherwise the waker is woken
    /// when they are.
    fn check_flushed(&self, _waker: &Waker) -> bool {
        true
    }

    /// Called after the last byte. The future, if any, ends when no byte of the *request* can be sent any more.
    fn settle_request_writes(&mut self) -> Option<RequestWritesSettled> {
        None
    }
}

/// Ready when no byte of a request can be sent any more.
pub type RequestWritesSettled = Pin<Box<dyn Future<Output = ()>>>;

/// A value that is dropped when the body is complete, or dropped.
struct DropOnComplete<T>(Option<T>);

impl<T: 'static> BodyObserver for DropOnComplete<T> {
    fn on_end(&mut self) {
        self.0 = None;
    }
}

/// A value that is dropped with the body.
struct DropWithBody<T>(T);

impl<T: 'static> BodyObserver for DropWithBody<T> {}
