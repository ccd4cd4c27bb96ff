//! Takes the lock at this gateway: at once where it is held here and free, or after a wait.

use std::time::Duration;

use fencegate_lock::manager::{
    lock_manager::AcquireError,
    lock_request::{LockRequest, LockWaitPlace},
};
use fencegate_metrics::AcquireLabel;
use fencegate_policies::plan::FenceRule;
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_zookeeper::peer_endpoint::HolderRoute;
use tokio::time::Instant;

use super::{held_lock::HeldLock, lock_wait::RequestLockWaitContext, request::LockingRequest};

/// The result of waiting for a lock at this gateway.
pub(super) enum LocalLockOutcome {
    Held(HeldLock),
    /// The route to the gateway that holds the key.
    ForwardTo(HolderRoute),
}

/// Waits for the lock, for at most `limit`. With `place` the wait also ends when the gateway that holds the
/// key is known, if the request may be served there.
///
/// # Errors
/// Returns an error if the lock is not granted in time, the gateway stops, or the client has left.
pub(super) async fn acquire<N>(
    wait: &mut RequestLockWaitContext<'_, N>,
    limit: Duration,
    place: LockWaitPlace,
) -> Result<LocalLockOutcome, Refusal> {
    let RequestLockWaitContext { fence, request, rule, relation, .. } = wait;
    let LockingRequest { keyed, lock, client, .. } = &mut **request;
    let metrics = fence.plan.metrics.route(lock.route);
    let FenceRule { hold, queue, .. } = **rule;
    let route = &keyed.plan.routes.get(lock.route).name;
    let delay = keyed.plan.upstream(keyed.upstream).fencing.handover_delay();
    let keys = &*lock.keys;
    let sites = &*lock.sites;
    let mode = lock.mode;
    let lock_request =
        LockRequest { keys, sites, mode, hold, wait: limit, queue, waits: place, delay, route };
    if let Some(tenure) = fence.gateway.locks.try_acquire(lock_request) {
        keyed.context.update_lock(|facts| facts.waited = Some(Duration::ZERO));
        metrics.record_acquire(AcquireLabel::Warm, mode, Duration::ZERO);
        let held = HeldLock::granted(fence, request, rule, relation.called_from(), tenure);
        return Ok(LocalLockOutcome::Held(held));
    }
    let began = Instant::now();
    let waiting = metrics.track_waiter();
    keyed.context.update_lock(|facts| facts.wait_began = Some(began));
    let acquired = tokio::select! {
        acquired = fence.gateway.locks.acquire(lock_request) => acquired,
        () = fence.wait_drain(&keyed.plan) => {
            return Err(Refusal::new(RefusalReason::Draining, "still waiting for its lock when the gateway stops"));
        }
        () = client.wait_disconnected() => {
            metrics.record_acquire(AcquireLabel::ClientGone, mode, began.elapsed());
            fence.gateway.hot_keys.record_wait(&lock.keys, began.elapsed(), true);
            // The client has disconnected, so nobody reads this refusal.
            return Err(Refusal::new(RefusalReason::Locked, "the client went away while waiting"));
        }
    };
    drop(waiting);
    keyed.context.update_lock(|facts| facts.waited = Some(began.elapsed()));
    let result = match &acquired {
        Ok(tenure) if tenure.is_reused() => AcquireLabel::HandedOver,
        Ok(tenure) if tenure.was_contended() => AcquireLabel::Waited,
        Ok(_) => AcquireLabel::Immediate,
        Err(refused) => AcquireLabel::Refused(refused),
    };
    metrics.record_acquire(result, mode, began.elapsed());
    if let Err(AcquireError::Elsewhere(holder)) = acquired {
        return Ok(LocalLockOutcome::ForwardTo(holder));
    }
    fence.gateway.hot_keys.record_wait(&lock.keys, began.elapsed(), acquired.is_err());
    match acquired {
        Ok(tenure) => {
            let held = HeldLock::granted(fence, request, rule, relation.called_from(), tenure);
            Ok(LocalLockOutcome::Held(held))
        }
        Err(refused) => Err(Refusal::from_lock_error(&refused, rule.locked_status)),
    }
}
