//! The right of a dispatch that the guard has let in.

use std::sync::Arc;

use fencegate_guard::doubt::Execution;
use fencegate_lock::tenures::tenure::Dispatch;
use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::clock::Permission;
use hyper::{HeaderMap, header::HeaderValue};

use crate::{headers::FENCING_TICKET, steps::permitted::Right};

/// To send it, and once more where nothing was sent.
pub struct Admission {
    token: Token,
    keys: Arc<[ResourceKey]>,
    mode: Mode,
    permission: Arc<dyn Permission>,
    ticket: Option<HeaderValue>,
}

impl Admission {
    /// `ticket`: what the service calls back with, where its gateway allows it.
    pub(super) fn of(running: &Execution, ticket: Option<HeaderValue>) -> Self {
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

impl Right for Admission {
    /// The same dispatch again: it is asked for anew only where nothing was sent.
    fn dispatch(&self) -> Option<Dispatch> {
        Some(Dispatch { token: self.token, evidence: self.permission.clone() })
    }

    fn keys(&self) -> &[ResourceKey] {
        &self.keys
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    /// No ticket unless its gateway says so: whoever has one can pass for a gateway for some minutes, and a service that does
    /// not call back has no use for it.
    fn stamp(&self, _: Token, headers: &mut HeaderMap) {
        if let Some(ticket) = &self.ticket {
            headers.insert(FENCING_TICKET, ticket.clone());
        }
    }
}
