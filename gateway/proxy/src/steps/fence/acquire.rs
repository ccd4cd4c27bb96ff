//! Waits for the key of a request, here or until the gateway that holds the key is known.

use std::{rc::Rc, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::manager::{
    grant_guard::GrantGuard,
    lock_manager::AcquireError,
    lock_request::{LockRequest, WaitPlace},
};
use fencegate_metrics::AcquireLabel;
use fencegate_policies::{
    key::ResourceKey,
    plan::{FenceRule, FencingLevel, NestedRequestPolicy},
};
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_endpoint::HolderRoute;
use tokio::time::Instant;

use super::{deps::FenceDeps, request_grant::RequestGrant};
use crate::steps::{
    client_liveness::ClientDisconnectWatch,
    key::{KeyedRequest, RequestLockSpec},
};

/// The result for a request that needs its lock.
pub(super) enum AcquireOutcome {
    Held(RequestGrant),
    /// The route to the gateway that holds the key.
    ForwardTo(HolderRoute),
}

impl<N: Network> FenceDeps<N> {
    /// # Errors
    /// The lock is not granted in time, the gateway stops, or the client has left.
    pub(super) async fn acquire(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
        wait: Duration,
        waits: WaitPlace,
        client: &mut ClientDisconnectWatch,
    ) -> Result<AcquireOutcome, Refusal> {
        let metrics = self.metrics.route(fenced.route);
        let FenceRule { hold, queue, .. } = *fence;
        let route = &request.plan.routes.get(fenced.route).name;
        let level = request.plan.upstream(request.upstream).fencing;
        let keys = &*fenced.keys;
        let sites = &*fenced.sites;
        let mode = fenced.mode;
        let delay = level.delay();
        let lock_request = LockRequest { keys, sites, mode, hold, wait, queue, waits, delay, route };
        let guarded = level == FencingLevel::Guard;
        let held = |tenure: GrantGuard| RequestGrant {
            keys: visible_keys(&tenure, &fenced.keys),
            tenure,
            mode: fenced.mode,
            counted: metrics.start_hold(fenced.mode),
            tickets: self.ticket_issuer(guarded, fence),
            operation: fenced.operation.clone().filter(|_| guarded),
            nested: if guarded { fence.nested } else { NestedRequestPolicy::Ignore },
            called_from: request.context.lock.get().called_from.filter(|_| guarded),
            running: fenced.running.clone(),
            _traced: None,
            _stay: None,
            share: None,
        };
        if let Some(tenure) = self.keeper.try_acquire(lock_request) {
            request.context.update_lock(|lock| lock.waited = Some(Duration::ZERO));
            metrics.record_acquire(AcquireLabel::Warm, fenced.mode, Duration::ZERO);
            return Ok(AcquireOutcome::Held(held(tenure)));
        }
        let began = Instant::now();
        let waiting = metrics.track_waiter();
        request.context.update_lock(|lock| lock.wait_began = Some(began));
        let acquired = tokio::select! {
            acquired = self.keeper.acquire(lock_request) => acquired,
            () = self.wait_drain(request.plan.listener.timeouts.drain / 2) => {
                return Err(Refusal::new(RefusalReason::Draining, "still waiting for its lock when the gateway stops"));
            }
            () = client.wait_disconnected() => {
                metrics.record_acquire(AcquireLabel::ClientGone, fenced.mode, began.elapsed());
                self.hot.record_wait(&fenced.keys, began.elapsed(), true);
                // The client has disconnected, so this answer has no reader.
                return Err(Refusal::new(RefusalReason::Locked, "the client went away while waiting"));
            }
        };
        drop(waiting);
        request.context.update_lock(|lock| lock.waited = Some(began.elapsed()));
        let result = match &acquired {
            Ok(tenure) if tenure.is_reused() => AcquireLabel::HandedOver,
            Ok(tenure) if tenure.was_contended() => AcquireLabel::Waited,
            Ok(_) => AcquireLabel::Immediate,
            Err(refused) => AcquireLabel::Refused(refused),
        };
        metrics.record_acquire(result, fenced.mode, began.elapsed());
        if let Err(AcquireError::Elsewhere(holder)) = acquired {
            return Ok(AcquireOutcome::ForwardTo(holder));
        }
        self.hot.record_wait(&fenced.keys, began.elapsed(), acquired.is_err());
        match acquired {
            Ok(tenure) => Ok(AcquireOutcome::Held(held(tenure))),
            Err(refused) => Err(Refusal::from_lock_error(&refused, fence.locked_status)),
        }
    }
}

/// The keys in the form for guards, tickets and services: each permit of a key has watermarks of its own.
pub(super) fn visible_keys(tenure: &GrantGuard, keys: &Rc<[ResourceKey]>) -> Rc<[ResourceKey]> {
    tenure.permit().map_or_else(|| keys.clone(), |permit| ResourceKey::all_for_permit(keys, permit))
}
