//! Checks the admission table, submits the changes to be stored, and waits until they are durable.

use fencegate_guard_store::{
    admission::{AdmitDecision, DispatchEnd, PresentedDispatch},
    error::DispatchRefusedError,
    store::{CommitSeq, StoreMutation},
};
use fencegate_process::clock::BootInstant;

use super::{LocalGuardBackend, LocalGuardState};
use crate::backend_types::{
    AdmitCheckResult, AdmitFirstOrRetry, AdmittedDispatchId, AdmittedOrBlocked, DispatchSendRecord,
    OperationReservationHandle, OperationToAdmit,
};

/// The result of one check of the admission table.
struct LocalAdmitResult {
    settled: AdmitDecision,
    /// Before this position is durable, no dispatch may be sent, and no wait may begin.
    written: CommitSeq,
    at: BootInstant,
    raised: bool,
}

impl LocalGuardBackend {
    /// See [`GuardBackend::try_admit`](crate::backend::GuardBackend::try_admit).
    pub(crate) async fn try_admit(
        &self,
        phase: AdmitFirstOrRetry,
        claim: &PresentedDispatch,
        admitting: Option<OperationToAdmit<'_>>,
        admitted: &mut AdmittedDispatchId,
    ) -> Result<AdmitCheckResult, DispatchRefusedError> {
        let LocalAdmitResult { settled, written, at, raised } = match phase {
            AdmitFirstOrRetry::First => self.check_raise_and_register(claim, admitting)?,
            AdmitFirstOrRetry::Again => self.check_and_register(claim, admitting)?,
        };
        let way = match settled {
            AdmitDecision::Running(id) => {
                *admitted = AdmittedDispatchId::Local(id);
                AdmittedOrBlocked::Admitted { since: at }
            }
            AdmitDecision::Wait { told, doubt } => AdmittedOrBlocked::Blocked { told, doubt },
        };
        self.wait_durable(written).await?;
        Ok(AdmitCheckResult { outcome: way, raised })
    }

    /// Raises watermarks and registers the dispatch even if its token is stale. Never lowers a watermark.
    pub(crate) async fn admit_unchecked(
        &self,
        claim: &PresentedDispatch,
        admitted: &mut AdmittedDispatchId,
    ) -> Result<BootInstant, DispatchRefusedError> {
        let (written, now) = {
            let mut state = self.lock();
            let now = state.now;
            let mut changes = state.register.raise_watermarks(claim, now);
            let (id, at_work) = state.register.register_dispatch(claim, now);
            *admitted = AdmittedDispatchId::Local(id);
            changes.extend(at_work);
            (self.submit(&mut state, claim, changes, None), now)
        };
        self.wait_durable(written).await?;
        Ok(now)
    }

    pub(crate) fn end_dispatch(
        &self,
        claim: &PresentedDispatch,
        admitted: AdmittedDispatchId,
        ended: DispatchEnd,
        sent: Option<DispatchSendRecord>,
    ) {
        let AdmittedDispatchId::Local(id) = admitted else { return };
        let mut state = self.lock();
        let now = state.now;
        let (DispatchEnd::InDoubt { until }, Some(DispatchSendRecord { place, last })) = (ended, sent) else {
            state.register.end_dispatch(claim, id, ended, now);
            return;
        };
        let until = until + state.sleep_detector.paused_since(last);
        state.register.end_dispatch(claim, id, DispatchEnd::InDoubt { until }, now);
        state.register.record_target(id, place, self.config.max_execution, now);
    }

    /// The first check compares the token with the watermarks, and raises them. If no other dispatch is in the
    /// way, it registers the dispatch in the same step, so that watermarks, keys at work and journal entry are
    /// one transaction.
    fn check_raise_and_register(
        &self,
        claim: &PresentedDispatch,
        admitting: Option<OperationToAdmit<'_>>,
    ) -> Result<LocalAdmitResult, DispatchRefusedError> {
        let mut state = self.lock();
        let now = state.now;
        let raised = state.register.check_and_raise_watermarks(claim, now)?;
        self.check_and_submit(&mut state, claim, admitting, raised, now)
    }

    /// A later check, of a dispatch that has waited. Its watermarks were raised by the first check.
    fn check_and_register(
        &self,
        claim: &PresentedDispatch,
        admitting: Option<OperationToAdmit<'_>>,
    ) -> Result<LocalAdmitResult, DispatchRefusedError> {
        let mut state = self.lock();
        let now = state.now;
        self.check_and_submit(&mut state, claim, admitting, Vec::new(), now)
    }

    /// Submits the raised watermarks even if the claim is refused, because its token was announced.
    fn check_and_submit(
        &self,
        state: &mut LocalGuardState,
        claim: &PresentedDispatch,
        admitting: Option<OperationToAdmit<'_>>,
        mut changes: Vec<StoreMutation>,
        at: BootInstant,
    ) -> Result<LocalAdmitResult, DispatchRefusedError> {
        let raised = !changes.is_empty();
        let (settled, entry) = match state.register.check_and_register(claim, at) {
            Ok((settled, at_work)) => {
                changes.extend(at_work);
                let entry = admitting.filter(|_| matches!(settled, AdmitDecision::Running(_)));
                (Ok(settled), entry)
            }
            Err(refused) => (Err(refused), None),
        };
        let written = self.submit(state, claim, changes, entry);
        Ok(LocalAdmitResult { settled: settled?, written, at, raised })
    }

    /// Submits watermarks, keys at work and journal entry as one transaction. Nothing may be sent under the claim
    /// before the returned position is durable.
    fn submit(
        &self,
        state: &mut LocalGuardState,
        claim: &PresentedDispatch,
        watermarks: Vec<StoreMutation>,
        entry: Option<OperationToAdmit<'_>>,
    ) -> CommitSeq {
        let mut changes = watermarks.clone();
        let entered = entry.is_some();
        if let Some(OperationToAdmit { lock: OperationReservationHandle::Local(id), entry }) = entry {
            let id = *id;
            state.active_operations.mark_running(id);
            // The age of the entry is measured by the store's time, so that time is written with the entry.
            changes.extend([
                StoreMutation::Operation { id, entry },
                StoreMutation::Time(self.store_time_seconds()),
            ]);
        }
        if changes.is_empty() {
            return state.register.required_seq(claim);
        }
        let moment = self.commits.submit(changes);
        state.register.record_submitted(&watermarks, moment);
        // The entry comes after the watermarks, even if those were submitted earlier, so its position covers them.
        if entered { moment } else { state.register.required_seq(claim) }
    }
}
