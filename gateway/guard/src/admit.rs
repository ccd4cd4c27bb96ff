//! Admits a dispatch: announces its token durably, waits for older executions, then checks the token again and
//! registers the dispatch in one step.

use std::sync::Arc;

use fencegate_guard_postgres::postgres::ChangeFuture;
use fencegate_guard_store::{admission::PresentedDispatch, error::DispatchRefusedError};
use fencegate_policies::plan::LockMode;
use fencegate_process::{clock::BootInstant, failpoint};
use tokio::time::{Instant, sleep_until};

use crate::{
    backend_types::{AdmitCheckResult, AdmitFirstOrRetry, AdmittedOrBlocked},
    execution::AdmittedExecution,
    guard::Guard,
    reserve::ReservedOperation,
    waiter::{ClientWaitLimit, WaitingClient},
};

impl Guard {
    /// Admits the dispatch. It counts as in flight until the end of the returned [`AdmittedExecution`] is recorded.
    ///
    /// # Errors
    /// Returns an error if the dispatch must not be sent. The watermarks of its keys may have been raised to its
    /// token all the same, so a retry needs the next dispatch number.
    ///
    /// # Cancellation
    /// Run the future to its end: it returns by itself when the client disconnects.
    pub async fn admit(
        self: &Arc<Self>,
        claim: PresentedDispatch,
        reserved: Option<ReservedOperation>,
        wait_limit: &mut ClientWaitLimit<'_, impl WaitingClient>,
    ) -> Result<AdmittedExecution, DispatchRefusedError> {
        let started = Instant::now();
        let mut running = AdmittedExecution::new(self.clone(), claim, reserved);
        let mut phase = AdmitFirstOrRetry::First;
        let mut new_tenure = false;
        loop {
            let AdmitCheckResult { outcome: way, raised } = running.try_admit(phase).await?;
            new_tenure |= raised;
            match way {
                AdmittedOrBlocked::Admitted { since } => {
                    running.mark_admitted(since);
                    failpoint::pass("guard_admitted");
                    self.metrics.record_admission(new_tenure, started.elapsed());
                    return Ok(running);
                }
                AdmittedOrBlocked::Blocked { told: changed, doubt } => {
                    self.wait_for_change(changed, doubt, wait_limit).await?
                }
            }
            phase = AdmitFirstOrRetry::Again;
        }
    }

    /// Returns the refusal for a dispatch that came after its latest start: `Stale` if a newer token is known,
    /// because the dispatch was overtaken then, and `Expired` otherwise. Raises no watermark.
    pub async fn late_dispatch_error(&self, claim: &PresentedDispatch) -> DispatchRefusedError {
        let mut newest = None;
        for key in claim.keys.iter() {
            // If the store cannot be read, no newer token is known, and the refusal is `Expired`.
            if let Ok(Some(seen)) = self.key_view(key).await {
                let read = seen.read.filter(|_| claim.mode == LockMode::Exclusive);
                newest = newest.max(seen.write).max(read);
            }
        }
        match newest.filter(|newest| newest.number() > claim.token.number()) {
            Some(newest) => DispatchRefusedError::Stale { newest },
            None => DispatchRefusedError::Expired,
        }
    }

    /// Raises watermarks and registers the dispatch even if its token is stale, for a guard that only observes. Never
    /// lowers a watermark.
    pub async fn admit_unchecked(
        self: &Arc<Self>,
        claim: PresentedDispatch,
    ) -> Result<AdmittedExecution, DispatchRefusedError> {
        let mut running = AdmittedExecution::new(self.clone(), claim, None);
        running.admit_unchecked().await?;
        Ok(running)
    }

    /// Waits until the state of the keys may have changed.
    async fn wait_for_change(
        &self,
        changed: ChangeFuture,
        doubt: Option<BootInstant>,
        wait_limit: &mut ClientWaitLimit<'_, impl WaitingClient>,
    ) -> Result<(), DispatchRefusedError> {
        let now = self.now();
        let over = doubt.map(|until| Instant::now() + until.since(now));
        // If the doubt lasts longer than this request may wait, refuse at once.
        if let (Some(until), Some(over)) = (doubt, over)
            && over > wait_limit.deadline
        {
            return Err(DispatchRefusedError::InDoubt { until });
        }
        let look_again = over.map_or(wait_limit.deadline, |over| over.min(wait_limit.deadline));
        tokio::select! {
            () = changed => Ok(()),
            () = sleep_until(look_again) => match (Instant::now() >= wait_limit.deadline, doubt) {
                (true, Some(until)) => Err(DispatchRefusedError::InDoubt { until }),
                (true, None) => Err(DispatchRefusedError::Busy),
                (false, _) => Ok(()),
            },
            () = wait_limit.client.wait_client_disconnected() => Err(DispatchRefusedError::Busy),
        }
    }
}
