//! Takes the answer to a fenced request in full before the key is released. Where the answer is too large, a task
//! keeps the key until the upstream has sent all of it.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use fencegate_http::{
    body::{Body, BodyChunk, BodyError, Reply},
    buffered::{AddChunkError, ChunkBuffer, MemoryBudget},
    upgrade::TunnelEnd,
};
use fencegate_process::failpoint;
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    Response,
    body::{Body as _, Frame},
    http::response::Parts,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// Keeps the key until an answer is complete. If it is dropped before [`Self::on_complete`],
/// [`Self::on_response_broken`] or [`Self::on_locally_aborted`] was called, the exchange counts as one whose end was
/// not seen.
#[expect(async_fn_in_trait, reason = "nothing here may ask for Send")]
pub trait ExchangeObserver: 'static {
    /// Returns when the rest of the answer is not worth waiting for any more.
    async fn wait_should_give_up(&self);
    /// Called when an answer came in full. `body` is `None` if it was not buffered in full. The answer may be one
    /// that does not end the execution: see [`crate::request_context::UpstreamResponseFlags::is_inconclusive`].
    async fn on_complete(self, head: &Parts, body: Option<&Bytes>);
    /// Called when the upstream has broken off the answer.
    fn on_response_broken(self);
    /// Called when the gateway has ended the exchange. The upstream may still be at work.
    fn on_locally_aborted(self);
    /// The keys, for the log.
    fn keys(&self) -> String;
}

/// The limits of size and time for the relay of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseRelayLimits {
    /// The largest answer, in bytes, that is buffered in full.
    pub most: usize,
    /// The longest time in which the client of a larger answer reads nothing.
    pub idle: Duration,
    /// The longest time that the client may take for the whole of a larger answer.
    pub total: Duration,
    /// The longest time for which a tunnel stays open.
    pub tunnel: Duration,
}

/// The reason for which an answer was not read to its end.
#[derive(Debug, thiserror::Error)]
enum ReadResponseError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the session could not be proven any more")]
    ProofLost,
}

impl ReadResponseError {
    /// Tells the observer how the answer ended. If a time limit of this process ended it, the upstream may still be
    /// at work.
    fn notify_observer(&self, keep: impl ExchangeObserver) {
        match self {
            Self::Body(BodyError::Stalled(_) | BodyError::Overdue { .. }) => keep.on_locally_aborted(),
            Self::Body(BodyError::Http(_) | BodyError::Abandoned) | Self::ProofLost => {
                keep.on_response_broken()
            }
        }
    }
}

/// Reads the answer. The key is free when the last byte has come, not when the client has read it. An answer that is
/// too large, or for which there is no memory, is streamed to the client: the request was dispatched, so it cannot be
/// refused.
pub(crate) async fn receive_response<K: ExchangeObserver>(
    reply: Reply,
    keep: K,
    bounds: ResponseRelayLimits,
    budget: &MemoryBudget,
    running: &TaskTracker,
) -> Result<Reply, Refusal> {
    let (head, mut body) = reply.into_parts();
    failpoint::pass("after_answer_head");
    if let Some(dug) = body.take_upgrade_handler() {
        let switch_head = head.clone();
        running.spawn_local(async move {
            match dug.run(bounds.tunnel).await {
                TunnelEnd::Closed => keep.on_complete(&switch_head, None).await,
                TunnelEnd::Broken => keep.on_response_broken(),
                TunnelEnd::Cut(_) => keep.on_locally_aborted(),
            }
        });
        return Ok(Response::from_parts(head, body));
    }
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let expected = announced.map_or(bounds.most, |length| length.min(bounds.most));
    let mut pieces = ChunkBuffer::new(budget, expected);
    let mut trailers = None;
    while let Some(frame) = next_frame(&mut body, &keep).await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                drop(body);
                error.notify_observer(keep);
                return Err(Refusal::new(
                    RefusalReason::OutcomeUnknown,
                    format!("the answer broke off: {error}"),
                ));
            }
        };
        let more = match frame.into_data().map(|data| pieces.add(data)) {
            Ok(Ok(())) if pieces.len() > bounds.most => None,
            Ok(Ok(())) => continue,
            Ok(Err(AddChunkError(piece))) => {
                budget.metrics().record_unbuffered_response();
                Some(piece)
            }
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        let (sender, piped) = mpsc::channel(PIPE_CAPACITY);
        let answer = UnbufferedResponse {
            head: head.clone(),
            keep,
            idle: bounds.idle,
            by: Instant::now() + bounds.total,
        };
        running.spawn_local(answer.stream_to_client(pieces, more, body, sender));
        return Ok(Response::from_parts(head, Body::from_channel(piped)));
    }
    body.wait_request_writes_settled().await;
    let whole = pieces.into_bytes();
    keep.on_complete(&head, Some(&whole)).await;
    Ok(Response::from_parts(head, Body::with_trailers(whole, trailers)))
}

/// The most pieces of a large answer that wait for the client.
const PIPE_CAPACITY: usize = 4;

/// An answer too large to be buffered in full.
struct UnbufferedResponse<K> {
    head: Parts,
    keep: K,
    idle: Duration,
    /// The moment until which the gateway waits for the client.
    by: Instant,
}

impl<K: ExchangeObserver> UnbufferedResponse<K> {
    /// Returns when the answer has ended or has broken off. If the client leaves or is too slow, the rest is read and
    /// discarded: the upstream is at work until the end of its answer, and only that end shows the outcome.
    async fn stream_to_client(
        self,
        begun: ChunkBuffer,
        more: Option<Bytes>,
        mut rest: Body,
        sender: mpsc::Sender<BodyChunk>,
    ) {
        let mut sender = Some(sender);
        if let Err(error) = self.stream_chunks(begun, more, &mut rest, &mut sender).await {
            warn!(keys = self.keep.keys(), why = %error, "the upstream's answer broke off");
            drop(rest);
            return error.notify_observer(self.keep);
        }
        rest.wait_request_writes_settled().await;
        self.keep.on_complete(&self.head, None).await;
        if let Some(sender) = sender {
            // The send fails if the client has left.
            sender.send(BodyChunk::End).await.ok();
        }
    }

    /// Reads the answer to its end, and passes its pieces on as long as there is a `sender`. When the client has left
    /// or is too slow, `sender` becomes `None`, and the client sees an answer that breaks off.
    async fn stream_chunks(
        &self,
        begun: ChunkBuffer,
        more: Option<Bytes>,
        rest: &mut Body,
        sender: &mut Option<mpsc::Sender<BodyChunk>>,
    ) -> Result<(), ReadResponseError> {
        let mut frame = (!begun.is_empty()).then(|| Frame::data(begun.into_bytes()));
        let mut more = more.map(Frame::data);
        loop {
            let Some(piece) = frame.take().or_else(|| more.take()) else { return Ok(()) };
            if let Some(client) = sender {
                let by = self.by.min(Instant::now() + self.idle);
                let sent = tokio::select! {
                    sent = timeout_at(by, client.send(BodyChunk::Frame(piece))) => sent,
                    () = self.keep.wait_should_give_up() => return Err(ReadResponseError::ProofLost),
                };
                if sent.is_err() {
                    info!(
                        keys = self.keep.keys(),
                        "the client read its answer too slowly: the rest is thrown away"
                    );
                }
                if !matches!(sent, Ok(Ok(()))) {
                    *sender = None;
                }
            }
            if more.is_none() {
                frame = next_frame(rest, &self.keep).await.transpose()?;
            }
        }
    }
}

async fn next_frame<K: ExchangeObserver>(
    body: &mut Body,
    keep: &K,
) -> Option<Result<Frame<Bytes>, ReadResponseError>> {
    tokio::select! {
        frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)) => frame.map(|frame| Ok(frame?)),
        () = keep.wait_should_give_up() => Some(Err(ReadResponseError::ProofLost)),
    }
}
