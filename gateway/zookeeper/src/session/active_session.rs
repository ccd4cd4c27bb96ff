//! The current session, for code that acts under it and for the rest of the process.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use fencegate_process::{
    clock::{BootInstant, SharedClock},
    randomness::Randomness,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{
    batch::ZkBatchQueue,
    client::ZkClient,
    era::token_epoch,
    heartbeat::HeartbeatSchedule,
    local_member::{LocalMember, MemberPlanPublisher},
    paths::ZkPaths,
    plan_publication::PublishedPlanState,
    session_deadline::SessionDeadline,
};
use crate::{
    error::GrantError, metrics::SessionMetrics, peer_endpoint::PeerEndpoint,
    session::registry::LockNodeRegistry, state::HighestEpochTracker,
};

/// A registered session, shared by all tasks that act under it on its thread.
pub struct ActiveSession<L> {
    pub client: L,
    pub paths: ZkPaths,
    /// The name of the session's member node.
    pub member: String,
    /// The endpoint at which peers reach this process.
    pub peer_endpoint: Option<PeerEndpoint>,
    pub(super) local_member: LocalMember,
    /// The plan that the session has published; `None` if the process publishes none.
    pub(super) announced_plan: Option<PublishedPlanState>,
    pub session_deadline: Arc<SessionDeadline>,
    /// Added to a czxid to make the epoch of a token.
    pub base: u64,
    pub token_history: Arc<HighestEpochTracker>,
    pub registry: LockNodeRegistry,
    /// The operations that create or remove nodes of mostly free keys, until they are sent and answered.
    pub batch_queue: ZkBatchQueue,
    /// Cancelled when the session is over or given up. From then on no lock is granted under the session.
    pub ended: CancellationToken,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    pub sequence_limit: u32,
    pub metrics: SessionMetrics,
    /// Heartbeat times and margin, from the session timeout; a reconnect may shorten them.
    pub(super) heartbeat_schedule: Cell<HeartbeatSchedule>,
    pub(super) heartbeat_acknowledged: Notify,
    /// The time at which a heartbeat was last acknowledged, even if that heartbeat did not extend the session
    /// deadline.
    pub(super) last_acknowledged: Cell<BootInstant>,
    /// Set when a node of this session had an epoch that was not above the epochs seen before.
    pub(super) rolled_back: Cell<bool>,
}

impl<L: ZkClient> ActiveSession<L> {
    /// The data of a lock node by which peers find this gateway; empty if they cannot reach it.
    pub fn gateway_reference(&self) -> &[u8] {
        if self.peer_endpoint.is_some() { self.member.as_bytes() } else { b"" }
    }

    pub(super) fn plan_publisher(&self) -> Option<(&MemberPlanPublisher, &PublishedPlanState)> {
        self.local_member.publisher().zip(self.announced_plan.as_ref())
    }

    /// The present heartbeat times and margin.
    pub fn heartbeat_schedule(&self) -> HeartbeatSchedule {
        self.heartbeat_schedule.get()
    }

    /// Returns when the session deadline lies ahead. For a session that is over this never returns, so select on
    /// [`ActiveSession::ended`] as well.
    pub async fn wait_session_valid(&self) {
        while !self.session_deadline.is_valid_at(self.clock.now()) {
            self.heartbeat_acknowledged.notified().await;
        }
    }

    /// Computes the epoch of a node of this session, and checks that it is above `before`, the highest epoch that was
    /// known when the create of the node was sent. Epochs that became known later do not count, because the node may
    /// have waited since its create.
    ///
    /// # Errors
    /// Returns an error if the czxid gives no token, or if ZooKeeper was rolled back. In the second case the session
    /// deadline is revoked, and the session is given up.
    pub fn checked_token_epoch(&self, czxid: i64, before: u64) -> Result<u64, GrantError> {
        let epoch = token_epoch(self.base, czxid)?;
        match self.token_history.record_epoch(epoch, before) {
            Ok(()) => Ok(epoch),
            Err(why) => {
                self.session_deadline.revoke();
                self.rolled_back.set(true);
                error!(code = "FG0503", %why, "lock.rolled_back");
                self.token_history.raise_rollback_alarm();
                Err(GrantError::Lost)
            }
        }
    }
}

/// The state of a session, as the other parts of the process see it.
#[derive(Debug, Clone)]
pub enum SessionState {
    /// There is no session; the text says why.
    NoSession(Arc<str>),
    /// There is no session because the installation does not exist yet; the text explains how to create it.
    NotInitialised(Arc<str>),
    /// No session is made because of a rollback of ZooKeeper; the text explains how it was found.
    RolledBack(Arc<str>),
    Active {
        connected: bool,
        deadline: Arc<SessionDeadline>,
    },
}

impl SessionState {
    /// Whether a lock could be granted now.
    pub fn is_ready(&self, clock: &SharedClock) -> bool {
        matches!(self, SessionState::Active { connected: true, deadline } if deadline.is_valid_at(clock.now()))
    }
}

/// Holds the current session, on the thread of the sessions.
pub struct CurrentSession<L> {
    live: RefCell<Option<Rc<ActiveSession<L>>>>,
    made: Notify,
}

impl<L> Default for CurrentSession<L> {
    fn default() -> Self {
        Self { live: RefCell::new(None), made: Notify::new() }
    }
}

impl<L> CurrentSession<L> {
    pub fn session(&self) -> Option<Rc<ActiveSession<L>>> {
        self.live.borrow().clone()
    }

    /// Returns at the next change of the session.
    pub async fn wait_session_changed(&self) {
        self.made.notified().await;
    }

    pub(super) fn set(&self, live: Option<Rc<ActiveSession<L>>>) -> Option<Rc<ActiveSession<L>>> {
        let before = self.live.replace(live);
        self.made.notify_waiters();
        before
    }
}
