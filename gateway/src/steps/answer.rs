//! Takes the answer to a fenced request in full before the key is given on; a larger one goes through a task that keeps
//! the key until the upstream has sent it all.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use hyper::{
    Response,
    body::{Body as _, Frame},
    http::response::Parts,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::{
    body::{Body, BodyError, Piece, Reply},
    pieces::Pieces,
    refusal::{Reason, Refusal},
    upstream::tunnel,
};

/// What has to be kept until an answer is complete. Dropped without [`Keep::complete`]: nobody saw the end.
#[expect(async_fn_in_trait, reason = "nothing here may ask for Send")]
pub trait Keep: 'static {
    /// Returns when the rest of the answer is not worth waiting for.
    async fn lapsed(&self);
    /// The upstream has answered in full. `body` where it is here in full.
    async fn complete(self, head: &Parts, body: Option<&Bytes>);
    /// The connection has ended in the middle of the answer.
    fn broken(self);
    /// For the log.
    fn keys(&self) -> String;
}

/// How much of an answer is taken, and how long it may pause.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes that are taken in full.
    pub most: usize,
    /// Between two pieces, and for a client to take one.
    pub idle: Duration,
    /// That a tunnel goes on.
    pub tunnel: Duration,
}

/// The answer did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the session could not be proven any more")]
    ProofLost,
}

/// Takes the answer. The key is free when the last byte is here, not when the client has read it.
pub async fn take<K: Keep>(
    reply: Reply,
    keep: K,
    bounds: Bounds,
    running: &TaskTracker,
) -> Result<Reply, Refusal> {
    let (head, mut body) = reply.into_parts();
    if let Some(dug) = body.take_tunnel() {
        let said = head.clone();
        running.spawn_local(async move {
            match dug.run(bounds.tunnel).await {
                tunnel::Ended::Closed => keep.complete(&said, None).await,
                tunnel::Ended::Cut(_) => keep.broken(),
            }
        });
        return Ok(Response::from_parts(head, body));
    }
    let (mut pieces, mut trailers) = (Pieces::default(), None);
    while let Some(frame) = next(&mut body, &keep).await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(why) => {
                drop(body);
                keep.broken();
                return Err(Refusal::new(Reason::OutcomeUnknown, format!("the answer broke off: {why}")));
            }
        };
        match frame.into_data() {
            Ok(data) => pieces.add(data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        if pieces.len() > bounds.most {
            let (feed, piped) = mpsc::channel(PIPED);
            let answer = Answer { head: head.clone(), keep, idle: bounds.idle };
            running.spawn_local(answer.pipe(pieces, body, feed));
            return Ok(Response::from_parts(head, Body::piped(piped)));
        }
    }
    body.settled().await;
    let whole = pieces.into_bytes();
    keep.complete(&head, Some(&whole)).await;
    Ok(Response::from_parts(head, Body::collected(whole, trailers)))
}

/// Pieces of a large answer that wait for the client.
const PIPED: usize = 4;

/// An answer too large to be taken in full.
struct Answer<K> {
    head: Parts,
    keep: K,
    idle: Duration,
}

impl<K: Keep> Answer<K> {
    /// Ends with the answer, with its breaking off, or with a client that takes nothing for `idle`. A client that goes
    /// away changes nothing: the rest is read and thrown away, because the upstream is at work until then.
    async fn pipe(self, begun: Pieces, mut rest: Body, feed: mpsc::Sender<Piece>) {
        if let Err(why) = self.pump(begun, &mut rest, &feed).await {
            match why {
                Ended::Slow => debug!(keys = self.keep.keys(), "client too slow for its answer"),
                Ended::Broken(why) => warn!(keys = self.keep.keys(), %why, "the answer broke off"),
            }
            drop(rest);
            return self.keep.broken();
        }
        rest.settled().await;
        self.keep.complete(&self.head, None).await;
        // Fails when the client has gone.
        feed.send(Piece::End).await.ok();
    }

    async fn pump(&self, begun: Pieces, rest: &mut Body, feed: &mpsc::Sender<Piece>) -> Result<(), Ended> {
        let mut frame = Some(Frame::data(begun.into_bytes()));
        while let Some(piece) = frame.take() {
            tokio::select! {
                sent = timeout(self.idle, feed.send(Piece::Frame(piece))) => drop(sent.map_err(|_| Ended::Slow)?),
                () = self.keep.lapsed() => return Err(Ended::Broken(Broken::ProofLost)),
            }
            frame = next(rest, &self.keep).await.transpose().map_err(Ended::Broken)?;
        }
        Ok(())
    }
}

enum Ended {
    Slow,
    Broken(Broken),
}

async fn next<K: Keep>(body: &mut Body, keep: &K) -> Option<Result<Frame<Bytes>, Broken>> {
    tokio::select! {
        frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)) => frame.map(|frame| Ok(frame?)),
        () = keep.lapsed() => Some(Err(Broken::ProofLost)),
    }
}
