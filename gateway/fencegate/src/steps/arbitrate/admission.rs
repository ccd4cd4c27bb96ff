//! The right of a dispatch that the guard has let in.

use std::sync::Arc;

use fencegate_guard::doubt::Execution;
use fencegate_lock::tenures::tenure::Dispatch;
use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::clock::Permission;
use hyper::HeaderMap;

use crate::steps::permitted::Right;

/// To send it, and once more where nothing was sent.
pub struct Admission {
    token: Token,
    keys: Arc<[ResourceKey]>,
    mode: Mode,
    permission: Arc<dyn Permission>,
}

impl Admission {
    pub(super) fn of(running: &Execution) -> Self {
        let claim = running.claim();
        Self {
            token: claim.token,
            keys: claim.keys.clone(),
            mode: claim.mode,
            permission: Arc::new(running.permission()),
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

    /// No ticket: whoever has one can pass for a gateway for some minutes, and the service has no use for it.
    fn stamp(&self, _: Token, _: &mut HeaderMap) {}
}
