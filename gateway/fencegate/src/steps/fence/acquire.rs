//! Waits for the key of a request, here or until the gateway that keeps the key is known.

use std::{rc::Rc, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::{
    reach::Way,
    tenures::{
        keeper::Refused,
        tenure::Tenure,
        wish::{Waits, Wish},
    },
};
use fencegate_policies::{
    key::ResourceKey,
    plan::{Fence, Level, Nested},
};
use tokio::time::Instant;

use super::{fencing::Fencing, held_tenure::HeldTenure};
use crate::{
    metrics::Acquired,
    refusal::{Reason, Refusal},
    steps::{
        key::{Fenced, Keyed},
        presence::WaitingClient,
    },
};

/// The result for a request that asked for its lock.
pub(super) enum Got {
    Hold(HeldTenure),
    /// The way to the gateway that keeps the key.
    Way(Way),
}

impl<N: Network> Fencing<N> {
    /// # Errors
    /// The lock is not granted in time, the gateway stops, or the client has left.
    pub(super) async fn acquire(
        &self,
        request: &Keyed,
        fenced: &Fenced,
        fence: &Fence,
        (wait, waits): (Duration, Waits),
        client: &mut WaitingClient,
    ) -> Result<Got, Refusal> {
        let metrics = self.metrics.route(fenced.route);
        let Fence { hold, queue, .. } = *fence;
        let route = &request.plan.routes.get(fenced.route).name;
        let level = request.plan.upstream(request.upstream).fencing;
        let (keys, sites, mode, delay) = (&*fenced.keys, &*fenced.sites, fenced.mode, level.delay());
        let wish = Wish { keys, sites, mode, hold, wait, queue, waits, delay, route };
        let guarded = level == Level::Guard;
        let held = |tenure: Tenure| HeldTenure {
            keys: shown_as(&tenure, &fenced.keys),
            tenure,
            mode: fenced.mode,
            counted: metrics.holding(fenced.mode),
            tickets: self.tickets_for(guarded, fence),
            operation: fenced.operation.clone().filter(|_| guarded),
            nested: if guarded { fence.nested } else { Nested::Ignore },
            called_from: request.notes.called_from.get().filter(|_| guarded),
            running: fenced.running.clone(),
            _traced: None,
            _stay: None,
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
                // The client has left, so nobody reads this answer.
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
            Err(refused) => Err(Refusal::of_lock(&refused, fence.locked_status)),
        }
    }
}

/// The keys as guards, tickets and services see them: each permit of a key has marks of its own.
pub(super) fn shown_as(tenure: &Tenure, keys: &Rc<[ResourceKey]>) -> Rc<[ResourceKey]> {
    tenure.permit().map_or_else(|| keys.clone(), |permit| ResourceKey::shown_as(keys, permit))
}
