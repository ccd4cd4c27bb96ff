//! Whether a dispatch comes from a gateway that may say so: its ticket. And what is told when it is refused.

use std::sync::PoisonError;

use fencegate_policies::key::ResourceKey;

use crate::{
    guard::{Guard, Refusals, Stale},
    refused::Refused,
    register::Claim,
    ticket::{Verifier, now},
};

impl Guard {
    /// Verifies the ticket before a mark can move, and says of which era the token is.
    ///
    /// # Errors
    /// Its signature, its time, or what it covers is not in order.
    pub fn verify(&self, verifier: &Verifier, ticket: &[u8], claim: &Claim) -> Result<u64, Refused> {
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
}
