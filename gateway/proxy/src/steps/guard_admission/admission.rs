//! The right of a dispatch that the guard has let in.

use std::sync::Arc;

use fencegate_guard::execution::AdmittedExecution;
use fencegate_guard_client::dispatch_window::DispatchWindow;
use fencegate_lock::manager::grant_guard::UpstreamDispatch;
use fencegate_policies::{key::ResourceKey, not_after::NotAfter, plan::LockMode, token::FencingToken};
use fencegate_process::clock::SendPermission;
use fencegate_protocol::headers::FENCING_TICKET;
use hyper::{HeaderMap, header::HeaderValue};

use crate::steps::authorized::DispatchPermit;

/// The right to send a request, and to send it again if nothing was sent.
pub struct GuardDispatchPermit {
    token: FencingToken,
    keys: Arc<[ResourceKey]>,
    mode: LockMode,
    permission: Arc<dyn SendPermission>,
    ticket: Option<HeaderValue>,
}

impl GuardDispatchPermit {
    /// `ticket` is for the service to call back, where its gateway allows that.
    pub(super) fn new(running: &AdmittedExecution, ticket: Option<HeaderValue>) -> Self {
        let claim = running.claim();
        Self {
            token: claim.token,
            keys: claim.keys.clone(),
            mode: claim.mode,
            permission: Arc::new(running.send_deadline()),
            ticket,
        }
    }
}

impl DispatchPermit for GuardDispatchPermit {
    /// The same dispatch again. It is requested a second time only if nothing was sent, or the service has said that it has
    /// processed nothing: so the service may see this token twice.
    fn next_dispatch(&self) -> Option<UpstreamDispatch> {
        Some(UpstreamDispatch { token: self.token, validity: self.permission.clone() })
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> LockMode {
        self.mode
    }

    /// The service gets no ticket unless its gateway allows it. With a ticket it could pass for a gateway for some
    /// minutes, and a service that does not call back needs none.
    fn add_permit_headers(&self, _: FencingToken, headers: &mut HeaderMap, span: DispatchWindow) -> NotAfter {
        if let Some(ticket) = &self.ticket {
            headers.insert(FENCING_TICKET, ticket.clone());
        }
        span.not_after
    }
}
