//! Verifies the ticket of a dispatch, and counts refusals.

use std::sync::PoisonError;

use fencegate_policies::key::ResourceKey;

use crate::{
    guard::{Guard, Refusals, Stale},
    refused::Refused,
    register::Claim,
    ticket::{Verifier, now},
};

impl Guard {
    /// Verifies the ticket, before any mark can move. Returns the era of the token.
    ///
    /// # Errors
    /// The signature or the time is wrong, or the ticket is for another claim.
    pub fn verify(&self, verifier: &Verifier, ticket: &[u8], claim: &Claim) -> Result<u64, Refused> {
        let verified = verifier.verify(ticket, &self.identity.ensemble, now())?;
        let keys = claim.keys.iter().map(ResourceKey::as_str);
        verified.covers(keys, claim.token, claim.mode)?;
        Ok(verified.claims.era)
    }

    /// Counts a refusal. The front logs it with the facts of the request.
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

    /// The dispatches that were refused as stale.
    pub fn refusals(&self) -> Refusals {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
