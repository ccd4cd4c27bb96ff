//! Asks the database to admit a dispatch, and reports its end to the database.

use fencegate_guard_postgres::postgres::{DispatchName, JournalWriteOutcome, PostgresAdmissionOutcome};
use fencegate_guard_store::{
    admission::{DispatchEnd, PresentedDispatch},
    error::DispatchRefusedError,
    operation::JournalUpdate,
};
use fencegate_process::clock::BootInstant;

use super::PostgresBackend;
use crate::backend_types::{
    AdmitCheckResult, AdmitFirstOrRetry, AdmittedDispatchId, AdmittedOrBlocked, DispatchSendRecord,
    OperationReservationHandle, OperationToAdmit,
};

impl PostgresBackend {
    /// See [`GuardBackend::try_admit`](crate::backend::GuardBackend::try_admit).
    pub(crate) async fn try_admit(
        &self,
        phase: AdmitFirstOrRetry,
        claim: &PresentedDispatch,
        admitting: Option<OperationToAdmit<'_>>,
        admitted: &mut AdmittedDispatchId,
    ) -> Result<AdmitCheckResult, DispatchRefusedError> {
        let name = self.dispatch_name(admitted);
        let operation = admitting.as_ref().and_then(|admitting| match admitting.lock {
            OperationReservationHandle::Postgres(held) => Some((held, &*admitting.entry)),
            OperationReservationHandle::Local(_) => None,
        });
        let reply = match phase {
            AdmitFirstOrRetry::First => self.postgres.admit(claim, name, operation).await,
            AdmitFirstOrRetry::Again => self.postgres.check_and_register(claim, name, operation).await,
        };
        let (way, raised) = match self.record_result("admit", reply)? {
            PostgresAdmissionOutcome::Running { dispatch, since } => {
                *admitted = AdmittedDispatchId::Postgres(dispatch);
                // Only the database can tell whether the epoch is new, so the first dispatch number stands for it.
                (AdmittedOrBlocked::Admitted { since }, claim.token.dispatch() == 1)
            }
            PostgresAdmissionOutcome::Wait { told, doubt } => {
                let doubt = doubt.map(|left| self.now() + left);
                (AdmittedOrBlocked::Blocked { told, doubt }, false)
            }
            PostgresAdmissionOutcome::Rejected(refused) => return Err(refused),
            PostgresAdmissionOutcome::NotHeld => return Err(lock_lost_error()),
        };
        Ok(AdmitCheckResult { outcome: way, raised })
    }

    /// Raises watermarks and registers the dispatch even if its token is stale. Never lowers a watermark.
    pub(crate) async fn admit_unchecked(
        &self,
        claim: &PresentedDispatch,
        admitted: &mut AdmittedDispatchId,
    ) -> Result<BootInstant, DispatchRefusedError> {
        let name = self.dispatch_name(admitted);
        match self.record_result("admit", self.postgres.admit_unchecked(claim, name).await)? {
            PostgresAdmissionOutcome::Running { dispatch, since, .. } => {
                *admitted = AdmittedDispatchId::Postgres(dispatch);
                Ok(since)
            }
            PostgresAdmissionOutcome::Rejected(refused) => Err(refused),
            PostgresAdmissionOutcome::Wait { .. } | PostgresAdmissionOutcome::NotHeld => Err(
                DispatchRefusedError::Store("the database did not let pass what it had to let pass".into()),
            ),
        }
    }

    /// The name of the dispatch: one name for all its checks, so that the database finds it again after a lost reply.
    fn dispatch_name(&self, admitted: &mut AdmittedDispatchId) -> DispatchName {
        match admitted {
            AdmittedDispatchId::Requested(name) => *name,
            _ => {
                let name = self.postgres.new_dispatch_name();
                *admitted = AdmittedDispatchId::Requested(name);
                name
            }
        }
    }

    /// Ends an admitted dispatch. A check without admission needs no end.
    pub(crate) fn end_dispatch(
        &self,
        admitted: &AdmittedDispatchId,
        ended: DispatchEnd,
        sent: Option<DispatchSendRecord>,
    ) {
        let AdmittedDispatchId::Postgres(dispatch) = admitted else { return };
        let (DispatchEnd::InDoubt { .. }, Some(DispatchSendRecord { place, last }), Some(_)) =
            (ended, sent, &self.config.watch)
        else {
            return self.postgres.end_dispatch(dispatch, ended);
        };
        // Another guard of the store may have a longer `max_execution`.
        let longest = self.postgres.status().longest_execution.max(self.config.max_execution);
        self.postgres.require_uptime_for_doubt(dispatch, place, longest, self.now().max(last));
    }

    pub(crate) async fn end_dispatch_with_outcome(
        &self,
        admitted: &AdmittedDispatchId,
        lock: &mut Option<OperationReservationHandle>,
        writing: JournalUpdate,
    ) -> Result<(), DispatchRefusedError> {
        let AdmittedDispatchId::Postgres(dispatch) = admitted else { return Ok(()) };
        let Some(OperationReservationHandle::Postgres(held)) = lock.take() else {
            self.postgres.end_dispatch(dispatch, DispatchEnd::Known);
            return Ok(());
        };
        let written =
            self.postgres.end_dispatch_with_outcome(dispatch, DispatchEnd::Known, held, writing).await;
        require_durable(self.record_result("end", written)?)
    }
}

pub(super) fn require_durable(written: JournalWriteOutcome) -> Result<(), DispatchRefusedError> {
    match written {
        JournalWriteOutcome::Durable => Ok(()),
        JournalWriteOutcome::NotHeld => Err(lock_lost_error()),
    }
}

fn lock_lost_error() -> DispatchRefusedError {
    DispatchRefusedError::Store(
        "another guard has taken the operation over: it held this one for dead".into(),
    )
}
