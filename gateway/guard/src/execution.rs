//! A dispatch from its admission to its end, and executions whose end was not observed.

use std::sync::Arc;

use fencegate_guard_postgres::postgres::GuardMembershipLease;
use fencegate_guard_store::{
    admission::{DispatchEnd, GuardKeyView, InDoubtExecution, PresentedDispatch},
    dispatch_target::DispatchTarget,
    error::DispatchRefusedError,
    operation::{JournalUpdate, StoredResponse},
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, token::FencingToken};
use fencegate_process::{
    clock::{BootInstant, SendPermission},
    failpoint,
};

use crate::{
    backend_types::{AdmitCheckResult, AdmitFirstOrRetry, AdmittedDispatchId, DispatchSendRecord},
    guard::Guard,
    reserve::ReservedOperation,
};

/// An admitted dispatch. One of its methods has to record how it ended; if it is dropped before, its execution is in
/// doubt.
pub struct AdmittedExecution {
    guard: Arc<Guard>,
    claim: PresentedDispatch,
    admitted: AdmittedDispatchId,
    reserved: Option<ReservedOperation>,
    /// The instant at which the permission to send began. `None`: no permission was granted yet, so nothing was
    /// sent.
    since: Option<BootInstant>,
    ended: bool,
}

/// The permission to send. It ends at a fixed instant. If the store is shared, it also ends with this guard's lease,
/// which each heartbeat renews.
#[derive(Debug, Clone)]
pub struct SendDeadline {
    end: BootInstant,
    membership: Option<GuardMembershipLease>,
}

impl SendPermission for SendDeadline {
    fn may_send_at(&self, now: BootInstant) -> bool {
        now < self.valid_until()
    }

    fn valid_until(&self) -> BootInstant {
        self.membership.as_ref().map_or(self.end, |lease| self.end.min(lease.membership_expiry()))
    }
}

/// The steps up to the admission.
impl AdmittedExecution {
    pub(crate) fn new(
        guard: Arc<Guard>,
        claim: PresentedDispatch,
        reserved: Option<ReservedOperation>,
    ) -> Self {
        Self { guard, claim, admitted: AdmittedDispatchId::NotAdmitted, reserved, since: None, ended: false }
    }

    /// Checks the dispatch's keys once, and admits the dispatch if no other one blocks it. After a refusal the
    /// dispatch is over.
    pub(crate) async fn try_admit(
        &mut self,
        phase: AdmitFirstOrRetry,
    ) -> Result<AdmitCheckResult, DispatchRefusedError> {
        let admitting = self.reserved.as_ref().and_then(ReservedOperation::operation_to_admit);
        self.guard.backend.try_admit(phase, &self.claim, admitting, &mut self.admitted).await
    }

    /// Admits the dispatch even if its token is stale.
    pub(crate) async fn admit_unchecked(&mut self) -> Result<(), DispatchRefusedError> {
        let since = self.guard.backend.admit_unchecked(&self.claim, &mut self.admitted).await?;
        self.mark_admitted(since);
        Ok(())
    }

    pub(crate) fn mark_admitted(&mut self, since: BootInstant) {
        self.since = Some(since);
        self.guard.metrics.add_in_flight(1);
        if self.reserved.is_some() {
            self.guard.metrics.record_operation("admitted");
        }
    }
}

impl AdmittedExecution {
    pub fn claim(&self) -> &PresentedDispatch {
        &self.claim
    }

    /// The id of the dispatch's operation, if the request has an `Idempotency-Key`.
    pub fn operation(&self) -> Option<OperationId> {
        self.reserved.as_ref().map(ReservedOperation::id)
    }

    /// The permission to send: it ends `send_within` after the registration began. So a guard that was paused
    /// sends nothing that other guards already count as over.
    pub fn send_deadline(&self) -> SendDeadline {
        let never = BootInstant::from_nanos(0);
        let end = self.since.map_or(never, |since| since + self.guard.config.send_within);
        SendDeadline { end, membership: self.guard.backend.membership() }
    }

    /// Records a complete response of the upstream. The key is free at once; the response is stored before this
    /// returns.
    ///
    /// # Errors
    /// Returns an error if the response could not be written. The operation's outcome is unknown then.
    pub async fn complete(mut self, answer: StoredResponse) -> Result<(), DispatchRefusedError> {
        let Some(reserved) = self.reserved.take() else {
            self.end_dispatch(DispatchEnd::Known, None);
            return Ok(());
        };
        failpoint::pass("before_result_recorded");
        let writing = reserved.completion_update(answer, &self.guard.config.journal);
        self.end_dispatch_with_outcome(reserved, writing).await
    }

    /// Records that not one byte left for the upstream, and that none will: the operation may run again.
    ///
    /// # Errors
    /// Returns an error if the record could not be written.
    pub async fn cancel_unsent(mut self) -> Result<(), DispatchRefusedError> {
        let Some(reserved) = self.reserved.take() else {
            self.end_dispatch(DispatchEnd::Known, None);
            return Ok(());
        };
        let writing = reserved.reservation.forget_update();
        self.end_dispatch_with_outcome(reserved, writing).await
    }

    /// Records that bytes left for `target`, the last of them at `last`, and that no complete response came.
    pub fn mark_in_doubt(mut self, last: BootInstant, target: Option<DispatchTarget>) {
        self.end_in_doubt(last, target);
        // A repeat of the operation gets `outcome-unknown` from now on, and does not wait.
        self.leave_operation_unresolved();
    }

    /// Leaves the outcome of the operation unknown, and releases its reservation.
    fn leave_operation_unresolved(&mut self) {
        if self.reserved.take().is_some() {
            self.guard.metrics.record_operation("unknown");
        }
    }

    fn end_in_doubt(&mut self, last: BootInstant, target: Option<DispatchTarget>) {
        let begun = self.guard.config.latest_start(self.since, last);
        let until = begun + self.guard.config.max_execution;
        self.end_dispatch(
            DispatchEnd::InDoubt { until },
            Some(DispatchSendRecord { place: target, last: begun }),
        );
    }

    /// Ends the dispatch, and writes down the outcome of its operation.
    async fn end_dispatch_with_outcome(
        mut self,
        mut reserved: ReservedOperation,
        writing: JournalUpdate,
    ) -> Result<(), DispatchRefusedError> {
        let admitted = self.mark_ended();
        let lock = reserved.reservation.lock_mut();
        self.guard.backend.end_dispatch_with_outcome(&self.claim, admitted, lock, writing).await
    }

    fn end_dispatch(&mut self, ended: DispatchEnd, sent: Option<DispatchSendRecord>) {
        let admitted = self.mark_ended();
        self.guard.backend.end_dispatch(&self.claim, admitted, ended, sent);
    }

    /// Marks this as ended, and returns the backend's name of the dispatch.
    fn mark_ended(&mut self) -> AdmittedDispatchId {
        self.ended = true;
        if self.since.is_some() {
            self.guard.metrics.add_in_flight(-1);
        }
        std::mem::replace(&mut self.admitted, AdmittedDispatchId::NotAdmitted)
    }
}

impl Drop for AdmittedExecution {
    fn drop(&mut self) {
        match (self.ended, self.since) {
            (true, _) => {}
            (false, None) => self.end_dispatch(DispatchEnd::Known, None),
            // A panic or a dropped task: bytes may have left until now, and none leave after this.
            (false, Some(_)) => {
                let now = self.guard.now();
                self.end_in_doubt(now, None);
                self.leave_operation_unresolved();
            }
        }
    }
}

impl Guard {
    /// Ends a doubt, because the upstream or an operator reports that no execution under this token is running
    /// any more. False if there was no such doubt.
    ///
    /// # Errors
    /// Returns an error if the store is not reachable.
    pub async fn resolve_doubt(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
        how: &'static str,
    ) -> Result<bool, DispatchRefusedError> {
        let resolved = self.backend.resolve_doubt(keys, token).await?;
        if resolved {
            self.metrics.record_doubt_resolved(how);
        }
        Ok(resolved)
    }

    /// The state that the guard knows of a key; `None` if it knows none.
    ///
    /// # Errors
    /// Returns an error if the store is not reachable.
    pub async fn key_view(&self, key: &ResourceKey) -> Result<Option<GuardKeyView>, DispatchRefusedError> {
        self.backend.key_view(key).await
    }

    /// Every execution in doubt.
    ///
    /// # Errors
    /// Returns an error if the store is not reachable.
    pub async fn doubts(&self) -> Result<Vec<InDoubtExecution>, DispatchRefusedError> {
        self.backend.doubts().await
    }
}
