//! Sends a request under its lock, and takes its answer.

use std::rc::Rc;

use fencegate_http::{body::Reply, network::Network};
use fencegate_idempotency::OperationPermit;
use fencegate_policies::plan::{CachedHoldLimits, FenceRule, LockReusePolicy};
use fencegate_process::key_redaction;
use fencegate_refusal::Refusal;
use tracing::warn;

use super::{
    context::WorkerFenceContext,
    held_lock::HeldLock,
    release::{AbandonedHoldPolicy, LockReleaseGuard},
};
use crate::{
    handler::Handler,
    request_context::UpstreamExchange,
    steps::{
        answer::{self, ResponseRelayLimits},
        authorized::{DispatchRight, DispatchableRequest},
        key::KeyedRequest,
    },
};

/// An exchange with the upstream, under a lock that the request holds.
pub(super) struct FencedExchange<'a, N> {
    pub(super) fence: &'a WorkerFenceContext<N>,
    pub(super) rule: &'a FenceRule,
    pub(super) held: Rc<HeldLock>,
    /// The record of the operation, where ZooKeeper stores operations.
    pub(super) record: Option<OperationPermit>,
}

impl<N: Network> FencedExchange<'_, N> {
    /// Sends the request, and takes its answer in full.
    ///
    /// # Errors
    /// Returns an error if the request was not sent, the upstream refuses it, or its answer did not come in full.
    ///
    /// # Cancellation
    /// If the future is dropped, the lock is kept until the upstream has had its time: see [`LockReleaseGuard`].
    pub(super) async fn run<S: Handler<DispatchableRequest<Rc<HeldLock>>>>(
        self,
        request: KeyedRequest,
        next: &S,
    ) -> Result<Reply, Refusal> {
        let Self { fence, rule, held, record } = self;
        let upstream = request.plan.upstream(request.upstream);
        let limits = ResponseRelayLimits {
            most: rule.max_response,
            idle: upstream.response_body_idle,
            total: upstream.response_body_total,
            tunnel: match rule.hold {
                LockReusePolicy::Cached(limits) => limits.max_tenure,
                LockReusePolicy::Strict => CachedHoldLimits::default().max_tenure,
            },
        };
        let policy = AbandonedHoldPolicy {
            level: upstream.fencing,
            response_timeout: upstream.response_timeout,
            expiry: upstream.expiry,
            running: fence.plan.running.clone(),
        };
        let context = request.context.clone();
        let exchange = Rc::<UpstreamExchange>::default();
        let release = LockReleaseGuard::new(
            &held,
            policy,
            fence.plan.process.clock.clone(),
            record,
            &exchange,
            &context,
        );
        let request = request.into_dispatchable(DispatchRight::Held(held.clone()), exchange.clone());
        let answered = match next.handle(request).await {
            Ok(reply) => {
                answer::receive_response(
                    reply,
                    release,
                    limits,
                    &fence.plan.process.budget,
                    &fence.plan.running,
                )
                .await
            }
            Err(refusal) => {
                release.on_refused(&refusal).await;
                Err(refusal)
            }
        };
        let is_validity_lost = !held.tenure.validity().is_valid_at(fence.plan.process.clock.now());
        context.update_lock(|facts| facts.is_validity_lost = is_validity_lost);
        match &answered {
            Err(refusal) if refusal.retires_grant() => {
                // The upstream may still be at work under this token, or have a newer one. Dropping the tenure
                // without a report that the outcome is certain retires it: nothing more is dispatched under it, and
                // the next tenure has a larger token.
                let token = exchange.token().map(|token| token.to_string());
                held.tenure.retire();
                warn!(
                    keys = key_redaction::redact_keys(&held.keys),
                    token,
                    why = refusal.reason.word(),
                    "tenure.retired"
                );
            }
            Err(_) => held.tenure.mark_upstream_settled(),
            // The [`LockReleaseGuard`], which observes the answer, reports its end.
            Ok(_) => {}
        }
        answered
    }
}
