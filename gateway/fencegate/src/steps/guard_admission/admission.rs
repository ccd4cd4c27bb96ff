//! The right of a dispatch that the guard has let in.

use std::sync::Arc;

use fencegate_guard::execution::Execution;
use fencegate_lock::manager::grant_guard::Dispatch;
use fencegate_policies::{key::ResourceKey, not_after::NotAfter, plan::Mode, token::Token};
use fencegate_process::clock::SendPermission;
use hyper::{HeaderMap, header::HeaderValue};

use crate::{dispatch_window::DispatchWindow, headers::FENCING_TICKET, steps::authorized::DispatchPermit};

/// The right to send a request, and to send it again if nothing was sent.
pub struct AdmissionPermit {
    token: Token,
    keys: Arc<[ResourceKey]>,
    mode: Mode,
    permission: Arc<dyn SendPermission>,
    ticket: Option<HeaderValue>,
}

impl AdmissionPermit {
    /// `ticket` is for the service to call back, where its gateway allows that.
    pub(super) fn new(running: &Execution, ticket: Option<HeaderValue>) -> Self {
        let claim = running.claim();
        Self {
            token: claim.token,
            keys: claim.keys.clone(),
            mode: claim.mode,
            permission: Arc::new(running.permission()),
            ticket,
        }
    }
}

impl DispatchPermit for AdmissionPermit {
    /// The same dispatch again. It is requested a second time only if nothing was sent.
    fn dispatch(&self) -> Option<Dispatch> {
        Some(Dispatch { token: self.token, validity: self.permission.clone() })
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    /// The service gets no ticket unless its gateway allows it. With a ticket it could pass for a gateway for some
    /// minutes, and a service that does not call back needs none.
    fn stamp(&self, _: Token, headers: &mut HeaderMap, span: DispatchWindow) -> NotAfter {
        if let Some(ticket) = &self.ticket {
            headers.insert(FENCING_TICKET, ticket.clone());
        }
        span.not_after
    }
}
