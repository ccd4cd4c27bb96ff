//! The right to send a dispatch that the guard has let in.

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
    /// `ticket` is passed to a service that may call back; `None` where the gateway does not allow that.
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
    /// Returns the same token each time. It is called again only if nothing was sent, or if the service has said that
    /// it has processed nothing; in the second case the service sees the token twice.
    fn next_dispatch(&self) -> Option<UpstreamDispatch> {
        Some(UpstreamDispatch { token: self.token, validity: self.permission.clone() })
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> LockMode {
        self.mode
    }

    /// Adds the ticket if the gateway allows that the service gets it. With a ticket a service could pass for a gateway
    /// for some minutes, and a service that does not call back needs none.
    fn add_permit_headers(&self, _: FencingToken, headers: &mut HeaderMap, span: DispatchWindow) -> NotAfter {
        if let Some(ticket) = &self.ticket {
            headers.insert(FENCING_TICKET, ticket.clone());
        }
        span.not_after
    }
}
