//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full.

use std::{future::poll_fn, rc::Rc, time::Duration};

use bytes::Bytes;
use fencegate_policies::plan::Level;
use hyper::{
    Response,
    body::{Body as _, Frame},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{
    admin::metrics::{Acquired, Holding, WorkerMetrics},
    body::{Body, BodyError, Piece, Reply},
    lock::{
        keeper::{Keeper, Limits, Refused},
        tenure::Tenure,
    },
    pieces::Pieces,
    refusal::{Outcome, Reason, Refusal},
    session::clock::SharedClock,
    stage::{Client, Detached, Held, Hold, Loaded, Routed},
    step::Serve,
    steps::forward::proof_needed,
};

/// What the step works with.
#[derive(Clone)]
pub struct Fencing {
    pub keeper: Keeper,
    pub clock: SharedClock,
    /// Answers too large to be taken in full, still on their way.
    pub running: TaskTracker,
    pub drain: CancellationToken,
    pub metrics: Rc<WorkerMetrics>,
}

pub async fn fence<S: Serve<Held>>(fencing: &Fencing, request: Detached, next: &S) -> Result<Reply, Refusal> {
    let Detached { loaded: Loaded(routed), mut client } = request;
    let Some(key) = routed.fenced.as_ref().map(|fenced| fenced.key.clone()) else {
        return next.serve(held(routed, None)).await;
    };
    let (tenure, counted) = fencing.acquire(&routed, &mut client).await?;
    let answer = Answer {
        most: routed.fence().expect("a fenced request has a fence").max_response,
        idle: routed.upstream().response_body_idle,
        level: routed.upstream().fencing,
        clock: fencing.clock.clone(),
        hold: Hold { tenure: Rc::new(tenure), key, counted: Rc::new(counted) },
    };
    let (notes, hold) = (routed.notes.clone(), answer.hold.clone());
    let reply = next.serve(held(routed, Some(hold.clone()))).await;
    let taken = match reply {
        Ok(reply) => answer.take(reply, &fencing.running).await,
        Err(refusal) => Err(refusal),
    };
    notes.proof_lost.set(!hold.tenure.proof().holds(fencing.clock.now()));
    if matches!(&taken, Err(refusal) if refusal.outcome() == Outcome::Unknown) {
        // The upstream may still be at work under this token. Dropping the tenure retires it: nothing is dispatched
        // under it again, and what comes next carries a larger one.
        warn!(key = %hold.key, token = ?notes.token.get().map(|token| token.to_string()), "tenure.retired");
    }
    taken
}

fn held(routed: Routed, hold: Option<Hold>) -> Held {
    let Routed { http, notes, plan, upstream, .. } = routed;
    Held { http, notes, plan, upstream, hold }
}

impl Fencing {
    /// A request that waits for a lock may go on for a part of the drain; then it is better told to go elsewhere.
    async fn drained(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }

    async fn acquire(&self, routed: &Routed, client: &mut Client) -> Result<(Tenure, Holding), Refusal> {
        let fenced = routed.fenced.as_ref().expect("asked for fenced requests only");
        let fence = routed.fence().expect("asked for fenced requests only");
        let metrics = self.metrics.route(fenced.route);
        let (asked, waiting) = (Instant::now(), metrics.waiting());
        let limits = Limits { wait: fence.wait, queue: fence.queue };
        let drain = routed.plan.listener.timeouts.drain;
        let acquired = tokio::select! {
            acquired = self.keeper.acquire(&fenced.key, limits) => acquired,
            () = self.drained(drain / 2) => {
                return Err(Refusal::new(Reason::Draining, "still waiting for its lock when the gateway stops"));
            }
            () = client.gone() => {
                metrics.acquired(Acquired::ClientGone, asked.elapsed());
                // Nobody reads this.
                return Err(Refusal::new(Reason::Locked, "the client went away while waiting"));
            }
        };
        drop(waiting);
        routed.notes.waited.set(Some(asked.elapsed()));
        let result = match &acquired {
            Ok(tenure) if tenure.was_contended() => Acquired::Waited,
            Ok(_) => Acquired::AtOnce,
            Err(refused) => Acquired::Refused(refused),
        };
        metrics.acquired(result, asked.elapsed());
        match acquired {
            Ok(tenure) => Ok((tenure, metrics.holding())),
            Err(refused) => Err(refusal(&refused, fence.locked_status)),
        }
    }
}

/// The answer to a fenced request, and what is kept until it is complete.
struct Answer {
    /// Bytes that are taken in full.
    most: usize,
    /// Between two pieces, and for a client to take one.
    idle: Duration,
    level: Level,
    clock: SharedClock,
    hold: Hold,
}

/// The answer did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the session could not be proven any more")]
    ProofLost,
}

impl Answer {
    /// Takes the answer in full, so that the key is free when the last byte is here and not when the client has read
    /// it. A larger answer goes through a task that holds the key until the upstream has sent it all.
    async fn take(self, reply: Reply, running: &TaskTracker) -> Result<Reply, Refusal> {
        let (head, mut body) = reply.into_parts();
        let (mut pieces, mut trailers) = (Pieces::default(), None);
        while let Some(frame) = self.next(&mut body).await {
            let broken =
                |why: Broken| Refusal::new(Reason::OutcomeUnknown, format!("the answer broke off: {why}"));
            match frame.map_err(broken)?.into_data() {
                Ok(data) => pieces.add(data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if pieces.len() > self.most {
                let (feed, piped) = mpsc::channel(PIPED);
                running.spawn_local(self.pipe(pieces, body, feed));
                return Ok(Response::from_parts(head, Body::piped(piped)));
            }
        }
        Ok(Response::from_parts(head, Body::collected(pieces.into_bytes(), trailers)))
    }

    /// Ends with the answer, with its breaking off, or with a client that takes nothing for `idle`. A client that goes
    /// away changes nothing: the rest is read and thrown away, because the upstream is at work until then.
    async fn pipe(self, begun: Pieces, mut rest: Body, feed: mpsc::Sender<Piece>) {
        let key = &self.hold.key;
        let mut frame = Some(Frame::data(begun.into_bytes()));
        while let Some(piece) = frame.take() {
            if timeout(self.idle, feed.send(Piece::Frame(piece))).await.is_err() {
                return debug!(%key, "client too slow for its answer");
            }
            frame = match self.next(&mut rest).await.transpose() {
                Ok(next) => next,
                Err(why) => return warn!(%key, %why, "the answer broke off"),
            };
        }
        // Fails when the client has gone.
        feed.send(Piece::End).await.ok();
    }

    async fn next(&self, body: &mut Body) -> Option<Result<Frame<Bytes>, Broken>> {
        tokio::select! {
            frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)) => frame.map(|frame| Ok(frame?)),
            () = proof_needed(Some(self.hold.tenure.proof()), self.level, &self.clock) => Some(Err(Broken::ProofLost)),
        }
    }
}

/// Pieces of a large answer that wait for the client.
const PIPED: usize = 4;

fn refusal(refused: &Refused, locked_status: u16) -> Refusal {
    let (reason, detail) = match refused {
        Refused::Locked => {
            return Refusal::new(Reason::Locked, refused.to_string()).with_status(locked_status);
        }
        Refused::QueueFull => (Reason::QueueFull, refused.to_string()),
        Refused::KeyLimit => (Reason::KeyLimit, refused.to_string()),
        Refused::Service(_) => (Reason::LockService, refused.to_string()),
    };
    Refusal::new(reason, detail)
}
