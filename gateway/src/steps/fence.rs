//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full.

use std::{future::poll_fn, rc::Rc, time::Duration};

use bytes::Bytes;
use fencegate_policies::{plan::Level, prefer};
use hyper::{
    HeaderMap, Response,
    body::{Body as _, Frame},
    header::HeaderValue,
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
        keeper::{Keeper, Refused, Wish},
        tenure::Tenure,
    },
    pieces::Pieces,
    refusal::{Outcome, Reason, Refusal},
    session::clock::SharedClock,
    stage::{Client, Detached, Fenced, Held, Hold, Keyed, listed},
    step::Serve,
    steps::forward::evidence_needed,
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
    let Detached { request, mut client } = request;
    let Some(fenced) = &request.fenced else { return next.serve(held(request, None)).await };
    let upstream = request.plan.upstream(request.upstream);
    let (tenure, counted) = fencing.acquire(&request, fenced, &mut client).await?;
    let hold = Hold {
        tenure: Rc::new(tenure),
        keys: fenced.keys.clone(),
        mode: fenced.mode,
        counted: Rc::new(counted),
    };
    let answer = Answer {
        most: fenced.fence(&request.plan).max_response,
        idle: upstream.response_body_idle,
        level: upstream.fencing,
        clock: fencing.clock.clone(),
        hold: hold.clone(),
    };
    let notes = request.notes.clone();
    let taken = match next.serve(held(request, Some(hold.clone()))).await {
        Ok(reply) => answer.take(reply, &fencing.running).await,
        Err(refusal) => Err(refusal),
    };
    notes.proof_lost.set(!hold.tenure.evidence().holds(fencing.clock.now()));
    match &taken {
        Err(refusal) if refusal.outcome() == Outcome::Unknown => {
            // The upstream may still be at work under this token. Without the word that all is known, dropping the
            // tenure retires it: nothing is dispatched under it again, and what comes next carries a larger one.
            let token = notes.token.get().map(|token| token.to_string());
            warn!(keys = listed(&hold.keys), token, "tenure.retired");
        }
        Err(_) => hold.tenure.known(),
        // Said by who has taken the answer to its end.
        Ok(_) => {}
    }
    taken
}

fn held(request: Keyed, hold: Option<Hold>) -> Held {
    let Keyed { http, notes, plan, upstream, .. } = request;
    Held { http, notes, plan, upstream, hold }
}

impl Fencing {
    /// A request that waits for a lock may go on for a part of the drain; then it is better told to go elsewhere.
    async fn drained(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }

    async fn acquire(
        &self,
        request: &Keyed,
        fenced: &Fenced,
        client: &mut Client,
    ) -> Result<(Tenure, Holding), Refusal> {
        let metrics = self.metrics.route(fenced.route);
        let fence = fenced.fence(&request.plan);
        let wish = Wish {
            keys: &fenced.keys,
            mode: fenced.mode,
            hold: fence.hold,
            wait: asked_wait(request.http.headers()).map_or(fence.wait, |asked| asked.min(fence.wait)),
            queue: fence.queue,
        };
        if let Some(tenure) = self.keeper.at_once(wish) {
            request.notes.waited.set(Some(Duration::ZERO));
            metrics.acquired(Acquired::Warm, fenced.mode, Duration::ZERO);
            return Ok((tenure, metrics.holding(fenced.mode)));
        }
        let (asked, waiting) = (Instant::now(), metrics.waiting());
        let acquired = tokio::select! {
            acquired = self.keeper.acquire(wish) => acquired,
            () = self.drained(request.plan.listener.timeouts.drain / 2) => {
                return Err(Refusal::new(Reason::Draining, "still waiting for its lock when the gateway stops"));
            }
            () = client.gone() => {
                metrics.acquired(Acquired::ClientGone, fenced.mode, asked.elapsed());
                // Nobody reads this.
                return Err(Refusal::new(Reason::Locked, "the client went away while waiting"));
            }
        };
        drop(waiting);
        request.notes.waited.set(Some(asked.elapsed()));
        let result = match &acquired {
            Ok(tenure) if tenure.was_contended() => Acquired::Waited,
            Ok(_) => Acquired::AtOnce,
            Err(refused) => Acquired::Refused(refused),
        };
        metrics.acquired(result, fenced.mode, asked.elapsed());
        match acquired {
            Ok(tenure) => Ok((tenure, metrics.holding(fenced.mode))),
            Err(refused) => Err(refusal(&refused, fence.locked_status)),
        }
    }
}

/// `Prefer: wait=N` (RFC 7240): how long the client would wait; it can lower its route's wait, not raise it.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    prefer::wait(headers.get_all("prefer").iter().map(HeaderValue::as_bytes))
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
        body.settled().await;
        self.hold.tenure.known();
        Ok(Response::from_parts(head, Body::collected(pieces.into_bytes(), trailers)))
    }

    /// Ends with the answer, with its breaking off, or with a client that takes nothing for `idle`. A client that goes
    /// away changes nothing: the rest is read and thrown away, because the upstream is at work until then.
    async fn pipe(self, begun: Pieces, mut rest: Body, feed: mpsc::Sender<Piece>) {
        let keys = listed(&self.hold.keys);
        let mut frame = Some(Frame::data(begun.into_bytes()));
        while let Some(piece) = frame.take() {
            let sent = tokio::select! {
                sent = timeout(self.idle, feed.send(Piece::Frame(piece))) => sent,
                () = self.evidence_needed() => return warn!(keys, why = %Broken::ProofLost, "the answer broke off"),
            };
            if sent.is_err() {
                return debug!(keys, "client too slow for its answer");
            }
            frame = match self.next(&mut rest).await.transpose() {
                Ok(next) => next,
                Err(why) => return warn!(keys, %why, "the answer broke off"),
            };
        }
        rest.settled().await;
        self.hold.tenure.known();
        // Fails when the client has gone.
        feed.send(Piece::End).await.ok();
    }

    async fn next(&self, body: &mut Body) -> Option<Result<Frame<Bytes>, Broken>> {
        tokio::select! {
            frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)) => frame.map(|frame| Ok(frame?)),
            () = self.evidence_needed() => Some(Err(Broken::ProofLost)),
        }
    }

    async fn evidence_needed(&self) {
        evidence_needed(Some(self.hold.tenure.evidence()), self.level, &self.clock).await;
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
        Refused::KeyLimit(_) => (Reason::KeyLimit, refused.to_string()),
        Refused::Service(_) => (Reason::LockService, refused.to_string()),
    };
    Refusal::new(reason, detail)
}
