//! Whether a dispatch comes from a gateway that may say so: its ticket. And what is told when it is refused.

use std::sync::{Arc, PoisonError};

use fencegate_policies::{
    key::{ResourceKey, listed},
    operation::Operation,
};
use serde::Serialize;

use super::{
    Guard, Refusals, Stale,
    operation::State,
    refused::Refused,
    register::{Claim, Open},
};
use crate::ticket::{Verifier, now};

/// The answer to a raised token.
#[derive(Debug, Serialize)]
pub struct Raised {
    /// Dispatches of older tokens that are let in and have not ended.
    in_flight: Vec<String>,
    /// Those whose end nobody saw.
    in_doubt: Vec<String>,
    /// `none`, `running`, `done` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'static str>,
}

impl Guard {
    /// Verifies the ticket before a mark can move, and says of which era the token is.
    ///
    /// # Errors
    /// Its signature, its time, or what it covers is not in order.
    pub fn verify(&self, verifier: &Arc<Verifier>, ticket: &[u8], claim: &Claim) -> Result<u64, Refused> {
        let verified = verifier.verify(ticket, &self.identity.ensemble, now())?;
        let keys = claim.keys.iter().map(ResourceKey::as_str);
        verified.covers(keys, claim.token, claim.mode)?;
        Ok(verified.claims.era)
    }

    /// Counts a refusal; the front logs it with all that is known of the request.
    pub fn refuse(&self, refused: Refused, claim: Option<&Claim>) -> Refused {
        self.metrics.decided(refused.decision());
        if let (Refused::Stale { newest }, Some(claim)) = (&refused, claim) {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            refusals.stale += 1;
            refusals.latest =
                Some(Stale { keys: claim.keys.to_vec(), presented: claim.token, newest: *newest });
        }
        refused
    }

    /// What came too late.
    pub fn refusals(&self) -> Refusals {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What may be at work under older tokens, and what is known of an operation.
    pub fn raised(&self, claim: &Claim, operation: Option<&Operation>) -> Result<Raised, Refused> {
        let now = self.now();
        let state = self.lock();
        let open = state.register.open_on(&claim.keys, now);
        let (in_flight, in_doubt): (Vec<_>, Vec<_>) = open.into_iter().partition(|open| open.until.is_none());
        let told = |open: Vec<&Open>| {
            open.into_iter().map(|open| format!("{} {}", open.token, listed(&open.keys))).collect()
        };
        let (in_flight, in_doubt) = (told(in_flight), told(in_doubt));
        let running = operation.is_some_and(|operation| state.underway.is_reserved(&operation.id));
        drop(state);
        let known = match operation {
            None => None,
            Some(_) if running => Some("running"),
            Some(operation) => Some(match self.store.operation(&operation.id) {
                Err(error) => return Err(Refused::Store(error.to_string())),
                Ok(None) => "none",
                Ok(Some(entry)) if entry.state == State::Admitted => "unknown",
                Ok(Some(_)) => "done",
            }),
        };
        Ok(Raised { in_flight, in_doubt, operation: known })
    }
}
