//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full.

mod elsewhere;
mod given_up;
mod kept;

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_http::{
    body::Reply,
    buffered::Budget,
    network::Network,
    share::{Client as Who, Share, Shares},
};
use fencegate_lock::{
    once::Admitted,
    reach::Way,
    tenures::{
        keeper::{Keeper, Refused},
        wish::{Waits, Wish},
    },
};
use fencegate_policies::{
    plan::{self, Caching, Enforce, Fence, Level},
    prefer,
};
use fencegate_process::{clock::SharedClock, shown};
use hyper::header::HeaderValue;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use self::{elsewhere::Waited, given_up::Terms, kept::Kept};
use crate::{
    edition::Edition,
    metrics::{Acquired, WorkerMetrics, hot::Hot},
    peers::Courier,
    refusal::{Reason, Refusal},
    stage::{Client, Detached, Fenced, Held, Hold, Keyed},
    step::Serve,
    steps::answer::{self, Bounds},
    ticketing::Ticketing,
    trust::Guards,
};

/// What the step works with.
#[derive(Clone)]
pub struct Fencing<N> {
    pub keeper: Keeper,
    /// Sends requests on to the gateways that keep their keys.
    pub courier: Option<Rc<Courier<N>>>,
    pub edition: Arc<Edition>,
    pub guards: Arc<Guards>,
    /// Where tickets are signed.
    pub tickets: Option<Arc<Ticketing>>,
    /// What each client waits for or holds.
    pub shares: Shares,
    pub clock: SharedClock,
    /// Answers too large to be taken in full, still on their way.
    pub running: TaskTracker,
    pub drain: CancellationToken,
    pub metrics: Rc<WorkerMetrics>,
    /// For answers that are here in full.
    pub budget: Budget,
    /// Which keys are waited for.
    pub hot: Hot,
}

pub async fn fence<N: Network, S: Serve<Held<Hold>>>(
    fencing: &Fencing<N>,
    request: Detached<Keyed>,
    next: &S,
) -> Result<Reply, Refusal> {
    let Detached { mut request, mut client } = request;
    let waits = fencing.waits(&request)?;
    let Some(fenced) = request.fenced.take() else { return next.serve(held(request, None)).await };
    let plan = request.plan.clone();
    let fence = fenced.fence(&plan);
    let share = match fencing.share(&request, &fenced, fence) {
        Ok(share) => share.map(Rc::new),
        Err(refusal) => return observed(fence.enforce, refusal, request, &mut client, next).await,
    };
    let deadline = elsewhere::deadline(&request, Instant::now() + wait(&request, fence));
    let mut second = fencing.second(&request, fence);
    let mut first: Option<Refusal> = None;
    if let Err(refusal) = fencing.opened(&request, fence, deadline, &mut client).await {
        return observed(fence.enforce, refusal, request, &mut client, next).await;
    }
    loop {
        let held = match fencing.wait(&request, &fenced, fence, (deadline, waits), &mut client).await {
            Ok(Waited::Held(held)) => Hold { share: share.clone(), ..held },
            // Counted until the answer is through, as one of ours is.
            Ok(Waited::Answered(reply)) => {
                return Ok((*reply).map(|body| body.keeping((share, fenced.running))));
            }
            Err(refusal) => return observed(fence.enforce, refusal, request, &mut client, next).await,
        };
        // The rest of its body will not come.
        if client.is_gone() && request.http.body().upload().is_some() {
            return Err(Refusal::new(Reason::Locked, "the client went away while waiting"));
        }
        // Whoever hung up while the second attempt waited may have asked elsewhere since.
        if let Some(refusal) = first.take_if(|_| client.is_gone()) {
            return Err(refusal);
        }
        let once = fencing.once(&request, &fenced, fence, &held, &mut client).await?;
        let notes = request.notes.clone();
        let refusal = match fencing.exchange(request, fence, held, once, next).await {
            Ok(reply) => return Ok(reply),
            Err(refusal) => refusal,
        };
        // Nothing was dispatched: a newer tenure was before us, or the proof ended. Once, and never after a byte left.
        match (refusal.reason, second.take()) {
            // Nobody waits for it any more: it may have been asked for again elsewhere.
            (Reason::Fenced, Some(again)) if !client.is_gone() => {
                let left = deadline.saturating_duration_since(Instant::now());
                fencing.keeper.session_for(&fenced.keys[0], left).await;
                (request, first) = (again, Some(refusal));
            }
            (Reason::Suspended, Some(again)) if fence.enforce == Enforce::Observe => {
                notes.token.set(None);
                return observed(fence.enforce, refusal, again, &mut client, next).await;
            }
            _ => return Err(refusal),
        }
    }
}

/// Where one only looks on, a request without a lock goes out without a token, and says why it would not have; but not
/// for a client that has gone away while it waited.
async fn observed<S: Serve<Held<Hold>>>(
    enforce: Enforce,
    refusal: Refusal,
    request: Keyed,
    client: &mut Client,
    next: &S,
) -> Result<Reply, Refusal> {
    if enforce == Enforce::Refuse || refusal.reason == Reason::Draining || client.is_gone() {
        return Err(refusal);
    }
    info!(reason = refusal.reason.word(), detail = %refusal.detail, "observed");
    request.notes.observed.set(Some(refusal.reason));
    next.serve(held(request, None)).await
}

/// `Prefer: wait=N` (RFC 7240): how long the client would wait; it can lower its route's wait, not raise it.
pub fn wait(request: &Keyed, fence: &Fence) -> Duration {
    let asked = prefer::wait(request.http.headers().get_all("prefer").iter().map(HeaderValue::as_bytes));
    asked.map_or(fence.wait, |asked| asked.min(fence.wait))
}

fn held(request: Keyed, hold: Option<Hold>) -> Held<Hold> {
    let Keyed { http, notes, plan, upstream, .. } = request;
    Held { http, notes, plan, upstream, hold }
}

/// Of a request that asked for its lock.
enum Got {
    Hold(Hold),
    /// To the gateway that keeps the key.
    Way(Way),
}

impl<N: Network> Fencing<N> {
    /// A request that waits for a lock may go on for a part of the drain; then it is better told to go elsewhere.
    async fn drained(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }

    /// A place among those of its client that wait for or hold keys of the route; `None` where they are not counted.
    fn share(&self, request: &Keyed, fenced: &Fenced, fence: &Fence) -> Result<Option<Share>, Refusal> {
        let Some(most) = fence.client_share else { return Ok(None) };
        let client = Who::at(request.notes.client.get().expect("set where the client is named"));
        let route = request.plan.routes.get(fenced.route).name.clone();
        let share = self.shares.of_route(client, route, most);
        share
            .map(Some)
            .ok_or_else(|| Refusal::new(Reason::ClientLimit, "the client has its share of the route"))
    }

    /// The request once more, where there is a second attempt: a guard may tell us that another tenure was before us.
    /// There is none of a body that is streamed: what was read of it is gone.
    fn second(&self, request: &Keyed, fence: &Fence) -> Option<Keyed> {
        let upstream = request.plan.upstream(request.upstream);
        let guarded = upstream.fencing == Level::Guard && self.guards.is_direct(upstream);
        (guarded || fence.enforce == Enforce::Observe).then(|| request.again())?
    }

    /// Waits until nothing runs any more that may be about the same resource under another key.
    async fn opened(
        &self,
        request: &Keyed,
        fence: &Fence,
        deadline: Instant,
        client: &mut Client,
    ) -> Result<(), Refusal> {
        if self.edition.is_open(request.upstream) {
            return Ok(());
        }
        let locked = |why| Refusal::new(Reason::Locked, why).with_status(fence.locked_status);
        tokio::select! {
            () = self.edition.opened(request.upstream) => Ok(()),
            () = self.drained(request.plan.listener.timeouts.drain / 2) => {
                Err(Refusal::new(Reason::Draining, "still waiting for the last plan when the gateway stops"))
            }
            () = sleep_until(deadline) => Err(locked("requests under the keys of the last plan still run")),
            () = client.gone() => Err(locked("the client went away while waiting")),
        }
    }

    /// Sends the request under the tenure, and takes the answer.
    async fn exchange<S: Serve<Held<Hold>>>(
        &self,
        request: Keyed,
        fence: &Fence,
        hold: Hold,
        once: Option<Admitted>,
        next: &S,
    ) -> Result<Reply, Refusal> {
        let upstream = request.plan.upstream(request.upstream);
        let longest = match fence.hold {
            plan::Hold::Cached(caching) => caching.max_tenure,
            plan::Hold::Strict => Caching::default().max_tenure,
        };
        let bounds = Bounds {
            most: fence.max_response,
            idle: upstream.response_body_idle,
            total: upstream.response_body_total,
            tunnel: longest,
        };
        let notes = request.notes.clone();
        let terms = Terms {
            level: upstream.fencing,
            response_timeout: upstream.response_timeout,
            running: self.running.clone(),
        };
        let kept = Kept::of(hold.clone(), terms, self.clock.clone(), once, notes.clone());
        let taken = match next.serve(held(request, Some(hold.clone()))).await {
            Ok(reply) => answer::take(reply, kept, bounds, &self.budget, &self.running).await,
            Err(refusal) => {
                kept.refused(&refusal).await;
                Err(refusal)
            }
        };
        notes.proof_lost.set(!hold.tenure.evidence().holds(self.clock.now()));
        match &taken {
            Err(refusal) if refusal.retires() => {
                // The upstream may still be at work under this token, or knows a newer one. Without the word that all
                // is known, dropping the tenure retires it: nothing is dispatched under it again, and what comes next
                // carries a larger one.
                let token = notes.token.get().map(|token| token.to_string());
                warn!(keys = shown::keys(&hold.keys), token, why = refusal.reason.word(), "tenure.retired");
            }
            Err(_) => hold.tenure.known(),
            // Said by who has taken the answer to its end.
            Ok(_) => {}
        }
        taken
    }

    async fn acquire(
        &self,
        request: &Keyed,
        fenced: &Fenced,
        fence: &Fence,
        (wait, waits): (Duration, Waits),
        client: &mut Client,
    ) -> Result<Got, Refusal> {
        let metrics = self.metrics.route(fenced.route);
        let Fence { hold, queue, .. } = *fence;
        let route = &request.plan.routes.get(fenced.route).name;
        let wish = Wish { keys: &fenced.keys, mode: fenced.mode, hold, wait, queue, waits, route };
        let guarded = request.plan.upstream(request.upstream).fencing == Level::Guard;
        let held = |tenure| Hold {
            tenure: Rc::new(tenure),
            keys: fenced.keys.clone(),
            mode: fenced.mode,
            counted: Rc::new(metrics.holding(fenced.mode)),
            tickets: self.tickets.clone().filter(|_| guarded),
            operation: fenced.operation.clone().filter(|_| guarded),
            running: fenced.running.clone(),
            share: None,
        };
        if let Some(tenure) = self.keeper.at_once(wish) {
            request.notes.waited.set(Some(Duration::ZERO));
            metrics.acquired(Acquired::Warm, fenced.mode, Duration::ZERO);
            return Ok(Got::Hold(held(tenure)));
        }
        let (asked, waiting) = (Instant::now(), metrics.waiting());
        request.notes.asked.set(Some(asked));
        let acquired = tokio::select! {
            acquired = self.keeper.acquire(wish) => acquired,
            () = self.drained(request.plan.listener.timeouts.drain / 2) => {
                return Err(Refusal::new(Reason::Draining, "still waiting for its lock when the gateway stops"));
            }
            () = client.gone() => {
                metrics.acquired(Acquired::ClientGone, fenced.mode, asked.elapsed());
                self.hot.waited(&fenced.keys, asked.elapsed(), true);
                // Nobody reads this.
                return Err(Refusal::new(Reason::Locked, "the client went away while waiting"));
            }
        };
        drop(waiting);
        request.notes.waited.set(Some(asked.elapsed()));
        let result = match &acquired {
            Ok(tenure) if tenure.follows_another() => Acquired::HandedOn,
            Ok(tenure) if tenure.was_contended() => Acquired::Waited,
            Ok(_) => Acquired::AtOnce,
            Err(refused) => Acquired::Refused(refused),
        };
        metrics.acquired(result, fenced.mode, asked.elapsed());
        if let Err(Refused::Elsewhere(way)) = acquired {
            return Ok(Got::Way(way));
        }
        self.hot.waited(&fenced.keys, asked.elapsed(), acquired.is_err());
        match acquired {
            Ok(tenure) => Ok(Got::Hold(held(tenure))),
            Err(refused) => Err(refusal(&refused, fence.locked_status)),
        }
    }
}

fn refusal(refused: &Refused, locked_status: u16) -> Refusal {
    let (reason, detail) = match refused {
        Refused::Locked => {
            return Refusal::new(Reason::Locked, refused.to_string()).with_status(locked_status);
        }
        Refused::QueueFull => (Reason::QueueFull, refused.to_string()),
        Refused::NotHolder | Refused::Elsewhere(_) => (Reason::NotHolder, refused.to_string()),
        Refused::KeyLimit(_) => (Reason::KeyLimit, refused.to_string()),
        Refused::Service(_) => (Reason::LockService, refused.to_string()),
        Refused::NotInitialised(_) => (Reason::NotInitialised, refused.to_string()),
        Refused::RolledBack(_) => (Reason::RolledBack, refused.to_string()),
    };
    Refusal::new(reason, detail)
}
