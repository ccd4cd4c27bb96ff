//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use fencegate_policies::{key::listed, plan::Level, prefer};
use hyper::{HeaderMap, header::HeaderValue, http::response::Parts};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use crate::{
    admin::metrics::{Acquired, Holding, WorkerMetrics},
    body::Reply,
    lock::{
        keeper::{Keeper, Refused, Wish},
        tenure::Tenure,
    },
    refusal::{Outcome, Reason, Refusal},
    session::clock::SharedClock,
    stage::{Client, Detached, Fenced, Held, Hold, Keyed},
    step::Serve,
    steps::{
        answer::{self, Bounds, Keep},
        forward::evidence_needed,
    },
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

pub async fn fence<S: Serve<Held<Hold>>>(
    fencing: &Fencing,
    request: Detached<Keyed>,
    next: &S,
) -> Result<Reply, Refusal> {
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
    let bounds = Bounds { most: fenced.fence(&request.plan).max_response, idle: upstream.response_body_idle };
    let kept = Kept { level: upstream.fencing, clock: fencing.clock.clone(), hold: hold.clone() };
    let notes = request.notes.clone();
    let taken = match next.serve(held(request, Some(hold.clone()))).await {
        Ok(reply) => answer::take(reply, kept, bounds, &fencing.running).await,
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

fn held(request: Keyed, hold: Option<Hold>) -> Held<Hold> {
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

/// What is kept until the answer is complete.
struct Kept {
    level: Level,
    clock: SharedClock,
    hold: Hold,
}

impl Keep for Kept {
    async fn lapsed(&self) {
        evidence_needed(Some(self.hold.tenure.evidence()), self.level, &self.clock).await;
    }

    async fn complete(self, _: &Parts, _: Option<&Bytes>) {
        self.hold.tenure.known();
    }

    /// Without the word that all is known, the tenure retires.
    fn broken(self) {}

    fn keys(&self) -> String {
        listed(&self.hold.keys)
    }
}

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
