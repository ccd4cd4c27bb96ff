//! Operator queries and changes in ZooKeeper through a running gateway: the queue of a key, the registered gateways,
//! operations with an unknown outcome.

mod exclusive_node;
pub mod handlers;
mod permit_queue;

use fencegate_idempotency::unresolved::UnresolvedOperation;
use fencegate_policies::{key::ResourceKey, plan::LockLocation};
use fencegate_recipe::grant_record::GrantRecord;
use fencegate_zookeeper::session::{active_session::SessionState, session_deadline::SessionDeadline};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::timeout};

use super::lock_manager::LockManager;
use crate::manager::admin_query::{
    AdminQueryError, AdminReplySender, BreakLockOutcome, GatewayLocation, LockQueueEntry, PublishedPlans,
    QUERY_TIMEOUT, RegisteredGateway, ResolveOperationOutcome, ResolveOperationRequest, SessionAdminCommand,
};
use crate::manager::session_command::SessionCommand;

/// One of the gateway's sessions, as the gateway sees it without a request to ZooKeeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStatus {
    pub number: usize,
    pub connected: bool,
    /// The session id as 16 hex digits; none without a session.
    pub id: Option<String>,
    /// How long it is until the session deadline, in milliseconds.
    pub proven_for_ms: u64,
    /// Why there is no session.
    pub away: Option<String>,
}

impl LockManager {
    /// The contenders for a key, in the order in which they get it.
    ///
    /// Dropping the future changes nothing. This is true for all queries here, except `break_lock` and
    /// `resolve_operation`.
    pub async fn queue_entries(
        &self,
        key: &ResourceKey,
        site: LockLocation,
    ) -> Result<Vec<LockQueueEntry>, AdminQueryError> {
        self.query(key, |answer| SessionAdminCommand::QueueEntries { key: key.clone(), site, answer }).await
    }

    /// The grant record of a key whose upstream does not compare tokens; `None` if there is none.
    pub async fn grant_record(&self, key: &ResourceKey) -> Result<Option<GrantRecord>, AdminQueryError> {
        self.query(key, |answer| SessionAdminCommand::Record { key: key.clone(), answer }).await
    }

    /// Removes a holder's lock node. The holder learns of that by a watch, so for a moment both it and the next holder
    /// may write. Then only a comparison of tokens distinguishes them.
    ///
    /// # Cancellation
    /// After a drop of the future the node may have been removed all the same.
    pub async fn break_lock(
        &self,
        key: &ResourceKey,
        site: LockLocation,
        holder: String,
    ) -> Result<BreakLockOutcome, AdminQueryError> {
        self.query(key, |answer| SessionAdminCommand::Break { key: key.clone(), site, holder, answer })
            .await
            .map_err(AdminQueryError::into_unknown_on_shutdown)
    }

    pub async fn members(&self) -> Result<Vec<RegisteredGateway>, AdminQueryError> {
        self.query_any(|answer| SessionAdminCommand::Members { answer }).await
    }

    /// The plans that the peers have published, compared with the plan of this gateway.
    pub async fn published_plans(&self) -> Result<PublishedPlans, AdminQueryError> {
        self.query_any(|answer| SessionAdminCommand::Published { answer }).await
    }

    /// The id of the session through which a lock of this key would be acquired; `None` while there is none.
    pub fn session_id_for(&self, key: &ResourceKey) -> Option<i64> {
        match &*self.session_handle(key).view.borrow() {
            SessionState::Active { deadline, .. } => Some(deadline.session_id()),
            SessionState::NoSession(_) | SessionState::NotInitialised(_) | SessionState::RolledBack(_) => {
                None
            }
        }
    }

    /// The gateway that has registered the session with this member node. Clients may send any name, but however many
    /// unknown names they send, these cause only a few reads of ZooKeeper per second.
    pub async fn locate_member(&self, member: String) -> Result<GatewayLocation, AdminQueryError> {
        let look = async || self.query_any(|answer| SessionAdminCommand::MemberNames { answer }).await;
        let known = timeout(QUERY_TIMEOUT, self.member_names.contains_or_reload(&member, look)).await;
        if !known.map_err(|_elapsed| AdminQueryError::Timeout(QUERY_TIMEOUT))?? {
            return Ok(GatewayLocation::Gone);
        }
        let found = self
            .query_any(|answer| SessionAdminCommand::LocateMember { member: member.clone(), answer })
            .await;
        if matches!(found, Ok(GatewayLocation::Gone)) {
            self.member_names.remove_cached_member(&member);
        }
        found
    }

    /// Operations with an unknown outcome.
    pub async fn unresolved_operations(&self) -> Result<Vec<UnresolvedOperation>, AdminQueryError> {
        self.query_any(|answer| SessionAdminCommand::Operations { answer }).await
    }

    /// Records an operator's resolution of an operation with an unknown outcome.
    ///
    /// # Cancellation
    /// After a drop of the future the resolution may have been written all the same.
    pub async fn resolve_operation(
        &self,
        resolution: ResolveOperationRequest,
    ) -> Result<ResolveOperationOutcome, AdminQueryError> {
        self.query_any(|answer| SessionAdminCommand::Resolve { resolution, answer })
            .await
            .map_err(AdminQueryError::into_unknown_on_shutdown)
    }

    pub fn sessions(&self) -> Vec<SessionStatus> {
        let now = self.clock.now();
        let proven = |deadline: &SessionDeadline| {
            deadline.expires_at().since(now).as_millis().try_into().unwrap_or(u64::MAX)
        };
        let status = |(number, view): (usize, SessionState)| match view {
            SessionState::NoSession(reason)
            | SessionState::NotInitialised(reason)
            | SessionState::RolledBack(reason) => SessionStatus {
                number,
                connected: false,
                id: None,
                proven_for_ms: 0,
                away: Some(reason.to_string()),
            },
            SessionState::Active { connected, deadline } => SessionStatus {
                number,
                connected,
                id: Some(format!("{:016x}", deadline.session_id())),
                proven_for_ms: proven(&deadline),
                away: None,
            },
        };
        self.session_handles
            .iter()
            .map(|session| session.view.borrow().clone())
            .enumerate()
            .map(status)
            .collect()
    }

    async fn query<T>(
        &self,
        key: &ResourceKey,
        question: impl FnOnce(AdminReplySender<T>) -> SessionAdminCommand,
    ) -> Result<T, AdminQueryError> {
        let (sender, answer) = oneshot::channel();
        self.session_handle(key)
            .work
            .send(SessionCommand::Query(question(sender)))
            .map_err(|_| AdminQueryError::NoSession)?;
        receive_in_time(answer).await
    }

    /// Sends a query to a session that is ready, if there is one, else to the first session.
    async fn query_any<T>(
        &self,
        question: impl FnOnce(AdminReplySender<T>) -> SessionAdminCommand,
    ) -> Result<T, AdminQueryError> {
        let ready = self.session_handles.iter().find(|session| session.view.borrow().is_ready(&self.clock));
        let session = ready.or(self.session_handles.first()).expect("there is at least one session");
        let (sender, answer) = oneshot::channel();
        session.work.send(SessionCommand::Query(question(sender))).map_err(|_| AdminQueryError::NoSession)?;
        receive_in_time(answer).await
    }
}

async fn receive_in_time<T>(
    answer: oneshot::Receiver<Result<T, AdminQueryError>>,
) -> Result<T, AdminQueryError> {
    match timeout(QUERY_TIMEOUT, answer).await {
        Ok(answer) => answer.unwrap_or(Err(AdminQueryError::ShuttingDown)),
        Err(_elapsed) => Err(AdminQueryError::Timeout(QUERY_TIMEOUT)),
    }
}
