//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full.

use std::{future::poll_fn, pin::Pin, rc::Rc, time::Duration};

use hyper::{Response, body::Body as _};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::{
    admin::metrics::{Acquired, Holding, WorkerMetrics},
    body::{Body, Piece, Reply},
    lock::{
        keeper::{Keeper, Limits, Refused},
        tenure::Tenure,
    },
    pieces::Pieces,
    refusal::{Outcome, Reason, Refusal},
    session::clock::SharedClock,
    stage::{Client, Detached, Held, Hold, Loaded, Routed},
    step::Serve,
};

/// What the step works with.
#[derive(Clone)]
pub struct Fencing {
    pub keeper: Keeper,
    pub clock: SharedClock,
    /// Answers too large to be taken in full, still on their way.
    pub running: TaskTracker,
    pub metrics: Rc<WorkerMetrics>,
}

pub async fn fence<S: Serve<Held>>(fencing: &Fencing, request: Detached, next: &S) -> Result<Reply, Refusal> {
    let Detached { loaded: Loaded(routed), mut client } = request;
    let Some(key) = routed.fenced.as_ref().map(|fenced| fenced.key.clone()) else {
        return next.serve(held(routed, None)).await;
    };
    let (tenure, counted) = fencing.acquire(&routed, &mut client).await?;
    let most = routed.fence().expect("a fenced request has a fence").max_response;
    let (idle, notes) = (routed.upstream().response_body_idle, routed.notes.clone());
    let hold = Hold { tenure: Rc::new(tenure), key, counted: Rc::new(counted) };
    let reply = next.serve(held(routed, Some(hold.clone()))).await;
    let taken = match reply {
        Ok(reply) => fencing.take(reply, most, idle, &hold).await,
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
    async fn acquire(&self, routed: &Routed, client: &mut Client) -> Result<(Tenure, Holding), Refusal> {
        let fenced = routed.fenced.as_ref().expect("asked for fenced requests only");
        let fence = routed.fence().expect("asked for fenced requests only");
        let metrics = self.metrics.route(fenced.route);
        let (asked, waiting) = (Instant::now(), metrics.waiting());
        let limits = Limits { wait: fence.wait, queue: fence.queue };
        let acquired = tokio::select! {
            acquired = self.keeper.acquire(&fenced.key, limits) => acquired,
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

    /// Takes the answer in full, so that the key is free when the last byte is here and not when the client has read
    /// it. A larger answer goes through a task that holds the key until the upstream has sent it all.
    async fn take(&self, reply: Reply, most: usize, idle: Duration, hold: &Hold) -> Result<Reply, Refusal> {
        let (head, mut body) = reply.into_parts();
        let (mut pieces, mut trailers) = (Pieces::default(), None);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|error| {
                Refusal::new(Reason::OutcomeUnknown, format!("the answer broke off: {error}"))
            })?;
            match frame.into_data() {
                Ok(data) => pieces.add(data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if pieces.len() > most {
                let body = self.pipe(pieces, body, idle, hold.clone());
                return Ok(Response::from_parts(head, body));
            }
        }
        Ok(Response::from_parts(head, Body::collected(pieces.into_bytes(), trailers)))
    }

    /// The task ends with the answer, with its breaking off, or with a client that takes nothing for `idle`. A client
    /// that goes away changes nothing: the rest is read and thrown away, because the upstream is at work until then.
    fn pipe(&self, begun: Pieces, mut rest: Body, idle: Duration, hold: Hold) -> Body {
        let (feed, pieces) = mpsc::channel(PIPED);
        self.running.spawn_local(async move {
            let mut frame = Some(hyper::body::Frame::data(begun.into_bytes()));
            while let Some(piece) = frame.take() {
                match timeout(idle, feed.send(Piece::Frame(piece))).await {
                    Ok(Ok(()) | Err(_)) => {}
                    Err(_elapsed) => return debug!(key = %hold.key, "client too slow for its answer"),
                }
                frame = match poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
                    Some(Ok(frame)) => Some(frame),
                    Some(Err(error)) => return warn!(key = %hold.key, %error, "the answer broke off"),
                    None => None,
                };
            }
            // Fails when the client has gone.
            drop(feed.send(Piece::End).await);
            drop(hold);
        });
        Body::piped(pieces)
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
