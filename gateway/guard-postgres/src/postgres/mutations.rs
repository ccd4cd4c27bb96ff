//! The changes that a guard makes in its store, for a dispatch or an operation of its own.

use std::{sync::Arc, time::Duration};

use fencegate_guard_store::{
    admission::{DispatchEnd, PresentedDispatch},
    error::DispatchRefusedError,
    operation::{JournalUpdate, OperationJournalEntry},
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, token::FencingToken};
use tokio::time::timeout;

use super::{
    admit_reply::{DispatchName, InFlightDispatch, PostgresAdmissionOutcome},
    connect::after_millis,
    error::PostgresError,
    instance::PostgresStore,
    membership::GuardMembershipLostError,
    notifiers::wait_notified,
    operation_lock::{
        JournalWriteOutcome, OperationLockIdentity, OperationLockReleaser, OperationLockReply,
        PostgresOperationLock,
    },
    request::{AdmitKind, DbReply, DbRequest},
    request_queue::CancelOnDropReply,
};

impl PostgresStore {
    /// The first check of a dispatch compares its token with the watermarks, and raises them. If no other
    /// dispatch is in the way, it registers the dispatch in the same transaction, with the entry of the
    /// operation.
    ///
    /// # Errors
    /// Returns an error if the dispatch must not be sent. If the database may have registered it, the
    /// registration is ended in the background.
    ///
    /// # Cancellation
    /// Dropping the future has the same effect as an error.
    pub async fn admit(
        &self,
        claim: &PresentedDispatch,
        name: DispatchName,
        operation: Option<(&PostgresOperationLock, &OperationJournalEntry)>,
    ) -> Result<PostgresAdmissionOutcome, PostgresError> {
        self.request_admission(AdmitKind::Claim, claim, name, operation).await
    }

    /// A later check of a dispatch that has waited, under the same name.
    ///
    /// # Errors
    /// Returns an error as [`PostgresStore::admit`] does.
    pub async fn check_and_register(
        &self,
        claim: &PresentedDispatch,
        name: DispatchName,
        operation: Option<(&PostgresOperationLock, &OperationJournalEntry)>,
    ) -> Result<PostgresAdmissionOutcome, PostgresError> {
        self.request_admission(AdmitKind::Settle, claim, name, operation).await
    }

    /// Raises watermarks and registers the dispatch even if its token is stale.
    ///
    /// # Errors
    /// Returns an error as [`PostgresStore::admit`] does.
    pub async fn admit_unchecked(
        &self,
        claim: &PresentedDispatch,
        name: DispatchName,
    ) -> Result<PostgresAdmissionOutcome, PostgresError> {
        self.request_admission(AdmitKind::Pass, claim, name, None).await
    }

    async fn request_admission(
        &self,
        how: AdmitKind,
        claim: &PresentedDispatch,
        name: DispatchName,
        operation: Option<(&PostgresOperationLock, &OperationJournalEntry)>,
    ) -> Result<PostgresAdmissionOutcome, PostgresError> {
        let since = self.instance.clock.now();
        let notifiers: Vec<_> =
            claim.keys.iter().map(|key| self.instance.notifiers.subscribe(key.as_str())).collect();
        let operation = operation.map(|(held, entry)| (held.id.clone(), Box::new(entry.clone())));
        let in_hand = self.instance.names.register_row_name(name.0);
        let request =
            DbRequest::Look { how, claim: claim.clone(), name, in_hand: in_hand.clone(), operation };
        let answer = self.send_and_wait(request).await?;
        let now = self.instance.clock.now();
        let refused = match answer {
            DbReply::Running => {
                let keys = claim.keys.clone();
                let token = claim.token;
                let mode = claim.mode;
                let dispatch = InFlightDispatch { name, keys, token, mode, _in_hand: in_hand };
                return Ok(PostgresAdmissionOutcome::Running { dispatch, since });
            }
            DbReply::Wait { key, left } => {
                let at = claim.keys.iter().position(|known| Some(known.as_str()) == key.as_deref());
                let notifier = notifiers.into_iter().nth(at.unwrap_or_default());
                let notifier =
                    notifier.ok_or_else(|| PostgresError::Refused("a claim without keys waits".into()))?;
                return Ok(PostgresAdmissionOutcome::Wait {
                    told: wait_notified(notifier),
                    doubt: left.map(|left| after_millis(now, left).since(now)),
                });
            }
            DbReply::NotHeld => return Ok(PostgresAdmissionOutcome::NotHeld),
            DbReply::Closed { left } => DispatchRefusedError::Quarantine { until: after_millis(now, left) },
            DbReply::Future { epoch } => DispatchRefusedError::Future { highest: epoch },
            DbReply::Floor { epoch } => DispatchRefusedError::Floor { floor: epoch },
            DbReply::Recovered { epoch } => DispatchRefusedError::Recovered { epoch },
            DbReply::Stale { token } => DispatchRefusedError::Stale { newest: token },
            DbReply::Duplicate { token } => DispatchRefusedError::Duplicate { newest: token },
            other @ (DbReply::Dead | DbReply::Done | DbReply::None) => {
                return Err(self.unexpected_reply(&other));
            }
        };
        Ok(PostgresAdmissionOutcome::Rejected(refused))
    }

    /// Records that the dispatch is over. The database is updated in the background, so a drop can call this.
    pub fn end_dispatch(&self, dispatch: &InFlightDispatch, ended: DispatchEnd) {
        let dispatch = dispatch.clone();
        let end = DbRequest::End { dispatch, ended, at_least: Duration::ZERO, operation: None };
        self.instance.requests.enqueue_detached(end);
    }

    /// Records that the dispatch is over, with this outcome of its operation, which is durable when this returns. The
    /// same transaction releases the operation lock.
    ///
    /// # Errors
    /// Returns an error if it is not known whether the outcome was written. The request is sent again in the
    /// background.
    pub async fn end_dispatch_with_outcome(
        &self,
        dispatch: &InFlightDispatch,
        ended: DispatchEnd,
        held: PostgresOperationLock,
        writing: JournalUpdate,
    ) -> Result<JournalWriteOutcome, PostgresError> {
        let operation = Some((held.into_id(), writing));
        let dispatch = dispatch.clone();
        self.request_write(DbRequest::End { dispatch, ended, at_least: Duration::ZERO, operation }).await
    }

    /// Acquires the lock of an operation, if it is free.
    ///
    /// # Errors
    /// Returns an error if the lock is not known to be acquired. If it was acquired, it is released in the
    /// background.
    pub async fn reserve(&self, id: OperationId) -> Result<OperationLockReply, PostgresError> {
        let notifier = self.instance.notifiers.subscribe(&id.to_string());
        let lock = OperationLockIdentity::new(id, self.instance.new_guid(), &self.instance.names);
        match self.send_and_wait(DbRequest::Reserve(lock.clone())).await? {
            DbReply::Done => {
                let back: Arc<dyn OperationLockReleaser> = self.instance.requests.clone();
                Ok(OperationLockReply::Acquired(PostgresOperationLock::new(lock, back)))
            }
            DbReply::Wait { .. } => Ok(OperationLockReply::Held(wait_notified(notifier))),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Changes the entry of an operation, under its lock.
    ///
    /// # Errors
    /// Returns an error if it is not known whether the entry was written. The request is sent again in the
    /// background.
    pub async fn update_entry(
        &self,
        held: &PostgresOperationLock,
        writing: JournalUpdate,
    ) -> Result<JournalWriteOutcome, PostgresError> {
        self.request_write(DbRequest::Write(held.id.clone(), writing)).await
    }

    async fn request_write(&self, item: DbRequest) -> Result<JournalWriteOutcome, PostgresError> {
        match self.send_and_wait(item).await? {
            DbReply::Done => Ok(JournalWriteOutcome::Durable),
            DbReply::NotHeld => Ok(JournalWriteOutcome::NotHeld),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Ends a doubt, because no execution under this token is running any more. False if there was no such
    /// doubt.
    ///
    /// # Errors
    /// Returns an error if it is not known whether the doubt has ended.
    pub async fn resolve_doubt(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Result<bool, PostgresError> {
        let answer = self.send_and_wait(DbRequest::Resolve { keys: keys.into(), token }).await?;
        Ok(answer == DbReply::Done)
    }

    /// Sends a request, and waits for its reply no longer than `send_within`: a client waits, and after that
    /// time a dispatch could not be sent any more.
    async fn send_and_wait(&self, item: DbRequest) -> Result<DbReply, PostgresError> {
        if let Some(lost) = self.instance.membership_error() {
            return Err(PostgresError::Lost(lost));
        }
        match timeout(self.instance.terms.send_within, self.instance.requests.enqueue(item)).await {
            Err(_) => Err(PostgresError::Timeout),
            Ok(Err(_gone)) => Err(PostgresError::Unreachable("this guard is leaving".into())),
            // Received and returned in one step, so that the reply is not lost in between.
            Ok(Ok(answer)) => answer.map(CancelOnDropReply::accept),
        }
    }

    fn unexpected_reply(&self, answer: &DbReply) -> PostgresError {
        match answer {
            DbReply::Dead => self.instance.mark_lost(GuardMembershipLostError::Dead),
            other => PostgresError::Refused(format!("it answered {other:?}")),
        }
    }
}
