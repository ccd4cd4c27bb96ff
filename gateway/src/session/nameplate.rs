//! What a gateway's member node says of it. Written with every heartbeat, so that it changes with the plan.

use std::sync::{Arc, Mutex, PoisonError};

use fencegate_policies::plan::Gateway;
use serde::{Deserialize, Serialize};

use super::{era::FORMAT, others::Others};

/// Data of a member node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub format: u32,
    pub version: String,
    /// Fingerprint of what decides keys and lock paths, 16 hex digits.
    pub plan: String,
}

/// The gateway that a member node is of: behind its name stands the session, see [`super::paths::Paths::member`].
pub fn gateway_of(node: &str) -> &str {
    node.rsplit_once('-').map_or(node, |(gateway, _)| gateway)
}

/// The data as it is to be written, shared by all sessions of a process.
#[derive(Debug, Clone)]
pub struct Nameplate {
    data: Arc<Mutex<Arc<[u8]>>>,
    /// What the nameplates of the other gateways say.
    others: Arc<Others>,
}

impl Nameplate {
    pub fn of(gateway: &Gateway) -> Self {
        Self { data: Arc::new(Mutex::new(data(gateway))), others: Arc::default() }
    }

    /// Another plan is in force.
    pub fn says(&self, gateway: &Gateway) {
        *self.data.lock().unwrap_or_else(PoisonError::into_inner) = data(gateway);
        self.others.look_again();
    }

    pub(super) fn others(&self) -> &Others {
        &self.others
    }

    pub fn data(&self) -> Arc<[u8]> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn data(gateway: &Gateway) -> Arc<[u8]> {
    let member = Member {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: format!("{:016x}", gateway.fingerprint),
    };
    serde_json::to_vec(&member).expect("plain fields serialise").into()
}
