//! A lock that one request holds, and the fields with which its dispatches are stamped.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_guard_client::{dispatch_window::DispatchWindow, ticket_issuer::TicketIssuer};
use fencegate_http::client_quota::ClientQuotaPermit;
use fencegate_lock::manager::grant_guard::{GrantGuard, UpstreamDispatch};
use fencegate_metrics::{AcquireLabel, HoldMetricsGuard, request_tracker::RequestTrackGuard};
use fencegate_policies::{
    key::ResourceKey,
    not_after::NotAfter,
    operation::FencingOperationHeader,
    plan::{FenceRule, FencingLevel, LockMode, NestedRequestPolicy},
    token::FencingToken,
};
use fencegate_protocol::headers::{FENCING_NESTED, FENCING_OPERATION, FENCING_PARENT, FENCING_TICKET};
use hyper::{HeaderMap, header::HeaderValue};

use super::{context::WorkerFenceContext, deadlock_hints::TraceKeyEntryGuard, request::LockingRequest};
use crate::steps::authorized::DispatchPermit;

/// A lock that one request holds. All that still needs the lock shares it, and the last drop releases it.
pub struct HeldLock {
    pub(super) tenure: GrantGuard,
    pub(super) keys: Rc<[ResourceKey]>,
    mode: LockMode,
    /// Signs the tickets for a guard, and for a service that may call back.
    tickets: Option<Arc<TicketIssuer>>,
    operation: Option<Rc<FencingOperationHeader>>,
    /// Tells whether a guard passes the ticket on to the service.
    nested: NestedRequestPolicy,
    /// The dispatch in which a service sent this request; it is stamped for a guard.
    called_from: Option<FencingToken>,
    pub(super) running: Rc<RunningRequestGuard>,
    _timer: HoldMetricsGuard,
    /// Records that the request's trace holds these keys, to recognise a request that waits for its own
    /// caller.
    _trace: Option<Box<TraceKeyEntryGuard>>,
    /// Keeps the request in the list of requests of its keys.
    _entry: Option<Rc<RequestTrackGuard>>,
    /// Counts the request in its client's quota, where the route limits the requests of each client.
    _share: Option<Rc<ClientQuotaPermit>>,
}

/// The tenure of another request or of a lease, which a request has entered.
pub(super) struct JoinedTenure {
    /// All keys of the tenure, as its ticket has them.
    pub(super) keys: Rc<[ResourceKey]>,
    /// The dispatch in which a service sent the request; `None` under a lease.
    pub(super) from: Option<FencingToken>,
    pub(super) tenure: GrantGuard,
    pub(super) mode: LockMode,
}

impl HeldLock {
    /// The lock of a request that has acquired it itself.
    pub(super) fn granted<N>(
        fence: &WorkerFenceContext<N>,
        request: &LockingRequest,
        rule: &FenceRule,
        from: Option<FencingToken>,
        tenure: GrantGuard,
    ) -> Self {
        let keys = keys_with_permit(&tenure, &request.lock.keys);
        Self::new(fence, request, rule, JoinedTenure { keys, from, tenure, mode: request.lock.mode })
    }

    /// The lock of a request that runs under the tenure of another request or of a lease.
    pub(super) fn joined<N>(
        fence: &WorkerFenceContext<N>,
        request: &LockingRequest,
        rule: &FenceRule,
        joined: JoinedTenure,
    ) -> Self {
        request.keyed.context.update_lock(|facts| facts.waited = Some(Duration::ZERO));
        fence.plan.metrics.route(request.lock.route).record_acquire(
            AcquireLabel::Nested,
            joined.mode,
            Duration::ZERO,
        );
        Self::new(fence, request, rule, joined)
    }

    fn new<N>(
        fence: &WorkerFenceContext<N>,
        LockingRequest { keyed: request, lock, .. }: &LockingRequest,
        rule: &FenceRule,
        JoinedTenure { keys, from, tenure, mode }: JoinedTenure,
    ) -> Self {
        let is_guarded = request.plan.upstream(request.upstream).fencing == FencingLevel::Guard;
        let has_ticket = is_guarded || rule.nested == NestedRequestPolicy::Allow;
        Self {
            tenure,
            keys,
            mode,
            tickets: fence.gateway.tickets.clone().filter(|_| has_ticket),
            operation: lock.operation.clone().filter(|_| is_guarded),
            nested: if is_guarded { rule.nested } else { NestedRequestPolicy::Ignore },
            called_from: from.filter(|_| is_guarded),
            running: lock.running.clone(),
            _timer: fence.plan.metrics.route(lock.route).start_hold(mode),
            _trace: None,
            _entry: None,
            _share: None,
        }
    }

    /// Records that this request holds its keys, in the trace index and in the list of requests of each key.
    pub(super) fn record_request_as_holder<N>(
        mut self,
        fence: &WorkerFenceContext<N>,
        request: &LockingRequest,
        rule: &FenceRule,
    ) -> Self {
        // The hint after a wait asks for a ticket. Only a service that may call back gets one, so only there the trace
        // is recorded.
        if rule.nested == NestedRequestPolicy::Allow {
            self._trace =
                Some(Box::new(fence.gateway.traces.insert(&self.keys, request.keyed.trace.context.id)));
        }
        request.entry.mark_granted();
        self._entry = Some(request.entry.clone());
        self
    }

    /// Keeps `share`, which counts the request in its client's quota, as long as the lock is held.
    pub(super) fn with_client_share(self, share: Option<Rc<ClientQuotaPermit>>) -> Self {
        Self { _share: share, ..self }
    }
}

/// Returns the keys as guards, tickets and services see them: each permit of a key has watermarks of its own.
pub(super) fn keys_with_permit(tenure: &GrantGuard, keys: &Rc<[ResourceKey]>) -> Rc<[ResourceKey]> {
    tenure.permit().map_or_else(|| keys.clone(), |permit| ResourceKey::all_for_permit(keys, permit))
}

impl DispatchPermit for Rc<HeldLock> {
    fn next_dispatch(&self) -> Option<UpstreamDispatch> {
        self.tenure.next_dispatch()
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> LockMode {
        self.mode
    }

    fn add_permit_headers(
        &self,
        token: FencingToken,
        headers: &mut HeaderMap,
        span: DispatchWindow,
    ) -> NotAfter {
        let mut not_after = span.not_after;
        if let Some(tickets) = &self.tickets {
            let wanted = span.is_signed.then_some(span);
            let signed = tickets.ticket_until(&self.keys, token, self.mode, self.tenure.session_id(), wanted);
            if let Some((ticket, bound)) = signed {
                headers.insert(FENCING_TICKET, ticket);
                not_after = bound.map_or(not_after, |bound| not_after.capped_at(bound));
            }
        }
        if self.nested == NestedRequestPolicy::Allow {
            headers.insert(FENCING_NESTED, HeaderValue::from_static("allow"));
        }
        match self.called_from {
            Some(token) => {
                let value = HeaderValue::from_bytes(&token.to_ascii()).expect("digits and dashes");
                headers.insert(FENCING_PARENT, value);
            }
            None => drop(headers.remove(FENCING_PARENT)),
        }
        if let Some(operation) = &self.operation {
            let value = HeaderValue::from_str(&operation.to_string()).expect("hex digits and numbers");
            headers.insert(FENCING_OPERATION, value);
        }
        not_after
    }
}
