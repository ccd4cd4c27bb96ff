//! Our hold of a key: what a dispatch is stamped with and proven by.

use std::{cell::Cell, sync::Arc};

use fencegate_policies::token::Token;
use tokio::sync::oneshot;

use super::{queues::Place, recipe::Grant};
use crate::session::proof::Proof;

/// A granted lock. Dropping it ends the tenure: its node is removed by the task that owns it, and no dispatch can
/// begin under it any more. Whoever writes bytes under it therefore keeps it until the last one.
#[derive(Debug)]
pub struct Tenure {
    epoch: u64,
    sequence: u32,
    dispatches: Cell<u32>,
    proof: Arc<Proof>,
    contended: bool,
    _over: oneshot::Sender<()>,
    _place: Place,
}

/// One sending of a request upstream under a tenure.
#[derive(Debug, Clone)]
pub struct Dispatch {
    pub token: Token,
    pub proof: Arc<Proof>,
}

impl Tenure {
    pub(super) fn new(grant: Grant, place: Place) -> Self {
        let Grant { epoch, sequence, proof, over, contended } = grant;
        Self { epoch, sequence, dispatches: Cell::new(0), proof, contended, _over: over, _place: place }
    }

    /// The next dispatch, with the next G. `None` after 2^32 - 1 of them, or for an epoch that fits no token.
    pub fn dispatch(&self) -> Option<Dispatch> {
        let number = self.dispatches.get().checked_add(1)?;
        self.dispatches.set(number);
        let token = Token::new(self.epoch, self.sequence, number).ok()?;
        Some(Dispatch { token, proof: self.proof.clone() })
    }

    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Another holder was before us.
    pub fn was_contended(&self) -> bool {
        self.contended
    }
}
