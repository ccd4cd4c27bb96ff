//! A lock that is one node with a fixed path: the creator of the node holds the lock, a gateway or any other program.
//!
//! Such a node has no queue. So the gateways' attempts wait in a queue of their own first, as for every other key. Only
//! the first in that queue tries to create the node, as its [`ExclusiveCreateAttempt`], and it releases that node and its lock
//! node in one transaction.

use std::{
    cell::OnceCell,
    rc::Rc,
    sync::{Arc, LazyLock},
};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockLocation, LockMode},
};
use fencegate_process::failpoint;
use fencegate_zookeeper::{
    error::GrantError,
    session::{
        active_session::ActiveSession,
        client::{MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkError},
        lock_validity::LockValidity,
        log_dedup::LogDedup,
    },
};
use tokio::time::sleep;
use tracing::warn;

use super::{
    attempt::LockAttempt,
    exclusive_create::{ExclusiveCreateAttempt, ExclusiveCreateOutcome},
    foreign_parent,
    grant::{LockAttemptError, LockAttemptObserver, LockGrant},
    lock_node::{CREATE_ROUNDS, LockNodeAttempt, REFUSED_PAUSE, definite_error},
};

/// One attempt at an exclusive node. In every case [`ExclusiveNodeAttempt::remove_nodes`] has to be the last call.
pub struct ExclusiveNodeAttempt<L: ZkClient> {
    /// The lock node in the queue of this installation's attempts.
    line: LockAttempt<L>,
    /// The path of the lock node in that queue, set once it is first.
    place: OnceCell<String>,
    path: String,
    node: ExclusiveCreateAttempt<L>,
}

/// How often a gateway's node is written when it is created, which sets its version. Other programs' nodes have version
/// 0, or 1 if they write their name afterwards. So if another client removes the gateway's node, a late delete does not
/// hit the successor's.
const WRITES: u8 = 3;

impl<L: ZkClient> ExclusiveNodeAttempt<L> {
    /// Begins an attempt at the node at `path`; `key` is the key that the node locks. Waits while the registry has no
    /// capacity.
    pub async fn begin(
        live: &Rc<ActiveSession<L>>,
        key: &ResourceKey,
        path: &str,
    ) -> Result<Self, GrantError> {
        let line = LockAttempt::begin(live, key, &LockLocation::Native, LockMode::Exclusive)
            .await?
            .for_exclusive_node(path);
        let node = ExclusiveCreateAttempt::prepare_exclusive_create(&line, path.len(), WRITES).await?;
        Ok(Self { line, place: OnceCell::new(), path: path.to_owned(), node })
    }

    fn candidate(&self) -> &LockNodeAttempt<L> {
        &self.line.candidate
    }

    fn session(&self) -> &ActiveSession<L> {
        &self.candidate().live
    }

    /// Waits in the queue, and then until the node can be created.
    pub async fn acquire(
        &self,
        caller: &mut impl LockAttemptObserver,
    ) -> Result<LockGrant, LockAttemptError> {
        let first = self.line.acquire(caller).await?;
        let place = self.place.get_or_init(|| first.nodes.concat());
        let mut contended = first.contended;
        let seen = loop {
            if let Some(seen) = self.try_create(place).await? {
                break seen;
            }
            contended = true;
            self.wait_released(caller).await?;
        };
        let epoch = self.node.token_epoch(seen)?;
        self.candidate().wait_session_valid(caller).await?;
        let validity = Arc::new(LockValidity::new(self.session().session_deadline.clone()));
        let nodes = [place.clone(), self.path.clone()].into();
        Ok(LockGrant { epoch, sequence: 0, permit: None, validity, nodes, contended })
    }

    /// Tries to create the node. `None`: another contender has it.
    async fn try_create(&self, place: &str) -> Result<Option<NodeStat>, GrantError> {
        for _ in 0..=CREATE_ROUNDS {
            let first = MultiOp::Check { path: place, version: ANY_VERSION };
            match self.node.try_create(self.candidate(), &self.path, first).await? {
                ExclusiveCreateOutcome::Ours(seen) => return Ok(Some(seen)),
                ExclusiveCreateOutcome::Taken(Some(owner)) if KEPT_WITHOUT_SESSION.contains(&owner) => {
                    if REPORTED.should_log(&self.path) {
                        warn!(code = "FG0528", path = self.path, "{NO_LOCK}");
                    }
                    return Err(GrantError::PlaceTaken(NO_LOCK));
                }
                ExclusiveCreateOutcome::Taken(_) => return Ok(None),
                ExclusiveCreateOutcome::NoParent => {
                    let made = foreign_parent::create_missing_ancestors(
                        self.session(),
                        parent_path(&self.path),
                        NodeCreateMode::Persistent,
                    )
                    .await;
                    made.map_err(definite_error)?;
                }
            }
        }
        Err(definite_error(ZkError::NoNode))
    }

    /// Waits until the node of the other contender may be gone.
    async fn wait_released(&self, caller: &mut impl LockAttemptObserver) -> Result<(), LockAttemptError> {
        caller.on_waiting()?;
        failpoint::pass("while_waiting");
        match self.session().client.watch(&self.path).await {
            Ok(changed) => tokio::select! {
                () = changed => {}
                () = caller.closed() => {}
                () = self.session().ended.cancelled() => return Err(GrantError::Lost.into()),
            },
            Err(ZkError::NoNode) => {}
            Err(ZkError::Ambiguous(_)) => self.candidate().pause_before_retry().await?,
            Err(fault) => return Err(definite_error(fault).into()),
        }
        if caller.is_closed() { Err(LockAttemptError::CallerGone) } else { Ok(()) }
    }

    /// Returns when the node does not belong to this attempt any more, calling `gone` with its path, or when the
    /// session is over.
    pub async fn watch_own_node(&self, gone: &impl Fn(&str)) {
        let link = &self.session().client;
        loop {
            let watched = link.watch(&self.path);
            let read = link.data(&self.path);
            let (watched, read) = tokio::join!(watched, read);
            failpoint::pass("while_watching");
            match (watched, read) {
                (Err(ZkError::SessionEnded), _) | (_, Err(ZkError::SessionEnded)) => return,
                (Err(ZkError::Ambiguous(_)), _) | (_, Err(ZkError::Ambiguous(_))) => {
                    if self.candidate().pause_before_retry().await.is_err() {
                        return;
                    }
                }
                (_, Err(ZkError::NoNode)) => return gone(&self.path),
                (_, Ok((says, seen))) if !self.node.is_ours(&says, seen) => return gone(&self.path),
                (Ok(changed), Ok(_)) => changed.await,
                // The server refused the watch. Until it is set, a removal may go unnoticed, so retry.
                _ => sleep(REFUSED_PAUSE).await,
            }
        }
    }

    /// Removes the node and the lock node in the queue. Returns when neither is left, or when the session is over.
    pub async fn remove_nodes(&self) {
        self.node.remove_nodes(&self.line, self.place.get().map(String::as_str)).await;
    }
}

/// Limits the log lines about nodes without a session, by path and for all sessions of the process: requests for such a
/// key are refused as often as clients repeat them.
static REPORTED: LazyLock<LogDedup> = LazyLock::new(LogDedup::default);

const NO_LOCK: &str = "where the lock node is to be made stands one that ends with no session, and so is nobody's lock: \
                       remove it, or correct `lock_path`";

/// Any version: the step only checks that the node exists.
const ANY_VERSION: i32 = -1;

/// The owners that a server reports for nodes of no session: 0 for a persistent node, `i64::MIN` for a container.
const KEPT_WITHOUT_SESSION: [i64; 2] = [0, i64::MIN];

/// The path of the parent of the node at `path`.
fn parent_path(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}
