//! Verifies the ticket of a dispatch, and counts refusals.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use fencegate_guard_store::{admission::PresentedDispatch, error::DispatchRefusedError};
use fencegate_policies::{key::ResourceKey, not_after::NotAfter};
use fencegate_ticket::{TicketVerifier, VerifiedTicket, unix_seconds};

use crate::guard::{Guard, StaleDispatch, StaleRefusalStats};

impl Guard {
    /// Verifies the ticket, before any watermark can move.
    ///
    /// # Errors
    /// Returns an error if the signature or the time is wrong, or if the ticket is for another claim.
    pub fn verify(
        &self,
        verifier: &TicketVerifier,
        ticket: &[u8],
        claim: &PresentedDispatch,
        not_after: Option<&NotAfter>,
    ) -> Result<Arc<VerifiedTicket>, DispatchRefusedError> {
        let verified = verifier.verify(ticket, &self.identity.ensemble, unix_seconds())?;
        let keys = claim.keys.iter().map(ResourceKey::as_str);
        verified.check_matches(keys, claim.token, claim.mode)?;
        not_after.map_or(Ok(()), |not_after| verified.check_not_after(not_after))?;
        Ok(verified)
    }

    /// Whether a dispatch may still begin. `not_after` is the gateway's stamp; `signed` is the moment in the
    /// dispatch's ticket, in milliseconds since 1970, which also bounds the unsigned value of the boot clock. A
    /// gateway of an older build sends neither, and its dispatch counts as in time.
    pub fn is_in_time(&self, not_after: Option<&NotAfter>, signed: Option<u64>) -> bool {
        let signed = signed.map(|unix_ms| NotAfter::new(unix_ms, None));
        let stamped = not_after.is_some();
        let error = self.config.clock_error;
        let clock = self.clock();
        let is_early = |moment: &NotAfter| clock.now() < clock.deadline_of(moment, error);
        // If gateway and guard run on one kernel, both read the same wall clock, so the error of that clock is
        // no reason to refuse.
        let is_bounded = |moment: &NotAfter| clock.unix_ms() < moment.unix_ms().saturating_add(millis(error));
        not_after.is_none_or(is_early)
            && signed
                .as_ref()
                .is_none_or(|signed| if stamped { is_bounded(signed) } else { is_early(signed) })
    }

    /// Counts a refusal. The front end logs it with the facts of the request.
    pub fn record_refusal(
        &self,
        refused: DispatchRefusedError,
        claim: Option<&PresentedDispatch>,
    ) -> DispatchRefusedError {
        self.metrics.record_decision(refused.decision_label());
        if let (DispatchRefusedError::Stale { newest }, Some(claim)) = (&refused, claim) {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            refusals.stale += 1;
            refusals.latest =
                Some(StaleDispatch { keys: claim.keys.to_vec(), presented: claim.token, newest: *newest });
        }
        refused
    }

    /// The dispatches that were refused as stale.
    pub fn stale_dispatch_stats(&self) -> StaleRefusalStats {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
