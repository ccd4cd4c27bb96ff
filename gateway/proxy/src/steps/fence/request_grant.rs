//! A tenure that one request holds, and the fields with which its dispatches are stamped.

use std::{rc::Rc, sync::Arc};

use fencegate_config::active_config::RunningRequestGuard;
use fencegate_guard_client::{dispatch_window::DispatchWindow, ticket_issuer::TicketIssuer};
use fencegate_http::client_quota::QuotaPermit;
use fencegate_lock::manager::grant_guard::{GrantGuard, UpstreamDispatch};
use fencegate_metrics::{HoldTimer, request_tracker::RequestTrackGuard};
use fencegate_policies::{
    key::ResourceKey,
    not_after::NotAfter,
    operation::OperationHeader,
    plan::{LockMode, NestedRequestPolicy},
    token::FencingToken,
};
use fencegate_protocol::headers::{FENCING_NESTED, FENCING_OPERATION, FENCING_PARENT, FENCING_TICKET};
use hyper::{HeaderMap, header::HeaderValue};

use super::deadlock_hints::TraceKeyGuard;
use crate::steps::authorized::DispatchPermit;

/// A tenure that one request holds. Shared by everything that still needs it.
pub struct RequestGrant {
    pub tenure: GrantGuard,
    pub keys: Rc<[ResourceKey]>,
    pub mode: LockMode,
    pub counted: HoldTimer,
    /// Signs the tickets for a guard, and for a service that may call back.
    pub tickets: Option<Arc<TicketIssuer>>,
    pub operation: Option<Rc<OperationHeader>>,
    /// Whether a guard passes the ticket on to the service.
    pub nested: NestedRequestPolicy,
    /// The dispatch in which the request was called, for a guard.
    pub called_from: Option<FencingToken>,
    pub running: Rc<RunningRequestGuard>,
    /// The request's trace has these keys, so that a call back can be recognised.
    pub(super) _traced: Option<Rc<TraceKeyGuard>>,
    /// The request is listed at its keys as long as this lives.
    pub(super) _stay: Option<Rc<RequestTrackGuard>>,
    /// The place in its client's share, where shares are limited.
    pub share: Option<Rc<QuotaPermit>>,
}

impl DispatchPermit for Rc<RequestGrant> {
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
