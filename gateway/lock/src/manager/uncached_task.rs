//! A lock for one request only: one key held `strict`, or a set of keys. Its nodes live as long as the request.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{ForeignLockLayout, LockLocation, LockMode},
};
use fencegate_process::clock::{BootInstant, SharedClock};
use fencegate_recipe::{
    attempt::LockAttempt,
    exclusive_node::ExclusiveNodeAttempt,
    grant::{LockAttemptError, LockAttemptObserver, LockGrant},
    lock_node::REFUSED_PAUSE,
    semaphore::SemaphoreAttempt,
    set::MultiKeyAttempt,
};
use fencegate_zookeeper::{
    error::GrantError,
    session::{active_session::ActiveSession, client::ZkClient, lock_validity::LockValidity},
    tenure_end::TenureEndCause,
};
use futures_util::future::join_all;
use tokio::{sync::oneshot, time::sleep};
use tracing::{debug, warn};

use super::{
    lock_request::LockWaitProgress,
    panic_guard::{FAILED, catch_panic},
};
use crate::manager::key_capacity::KeyRequestSlot;

/// A request for the lock of one key or of several at once.
pub(crate) struct UncachedLockRequest {
    /// The keys with their sites: sorted, without duplicates, at least one.
    pub keys: Vec<(ResourceKey, LockLocation)>,
    pub mode: LockMode,
    /// Whether to wait for another holder. If false, the lock is taken only if there is no holder.
    pub waits: bool,
    pub delay: Option<Duration>,
    pub caller: oneshot::Sender<Result<UncachedGrant, GrantError>>,
    pub ahead: Arc<LockWaitProgress>,
    /// The capacity that the request takes. It is kept until no node is left, even if the caller goes early, so that
    /// the capacity bounds the lock nodes as well.
    pub places: Arc<[KeyRequestSlot]>,
}

/// A granted lock. Its nodes are removed when `over` is sent or dropped; the value that is sent says whether all
/// outcomes are known.
#[derive(Debug)]
pub struct UncachedGrant {
    pub grant: LockGrant,
    pub over: oneshot::Sender<bool>,
}

/// Acquires the lock, and keeps it until `over` is sent. Returns when no node is left, or the session is over.
pub(crate) async fn acquire_and_hold<L: ZkClient>(live: Rc<ActiveSession<L>>, request: UncachedLockRequest) {
    let UncachedLockRequest { keys, mode, waits, delay, caller, ahead, places } = request;
    let mut caller =
        UncachedRequestObserver { answer: Some(caller), waits, ahead, clock: live.clock.clone() };
    let begun = match keys.as_slice() {
        keys if keys.iter().any(|(_, site)| site.permits().is_some()) => {
            begin_semaphore(&live, keys, mode, delay).await.map(UncachedLockAttempt::Permit)
        }
        [(key, LockLocation::Foreign { layout: ForeignLockLayout::ExclusiveNode, path })] => {
            ExclusiveNodeAttempt::begin(&live, key, path).await.map(UncachedLockAttempt::ExclusiveNode)
        }
        [(key, site)] => LockAttempt::begin(&live, key, site, mode)
            .await
            .map(|one| UncachedLockAttempt::Single(one.with_handover_delay(delay))),
        keys => MultiKeyAttempt::begin(&live, keys, mode)
            .await
            .map(|set| UncachedLockAttempt::Set(set.with_delay(delay))),
    };
    let nodes = match begun {
        Ok(nodes) => nodes,
        Err(error) => return drop(caller.reply(Err(error))),
    };
    let started = live.clock.now();
    match catch_panic(nodes.acquire(&mut caller)).await {
        Some(Ok(grant)) => {
            live.metrics.record_grant(live.clock.now().since(started));
            let (over, ended) = oneshot::channel();
            let validity = grant.validity.clone();
            if caller.reply(Ok(UncachedGrant { grant, over })).is_ok() {
                live.metrics.record_tenure_end(nodes.hold_until_ended(&live, &validity, ended).await);
            } else {
                // The caller had gone, so the grant came back unused, and nothing was sent under it.
                nodes.mark_outcomes_known();
            }
        }
        Some(Err(LockAttemptError::CallerGone)) => debug!("caller gone while waiting for its lock"),
        Some(Err(LockAttemptError::NotGranted(error))) => drop(caller.reply(Err(error))),
        None => drop(caller.reply(Err(GrantError::Service(FAILED.into())))),
    }
    while catch_panic(nodes.remove_nodes()).await.is_none() {
        sleep(REFUSED_PAUSE).await;
    }
    drop(places);
}

/// Begins an attempt at a permit of one key.
async fn begin_semaphore<L: ZkClient>(
    live: &Rc<ActiveSession<L>>,
    keys: &[(ResourceKey, LockLocation)],
    mode: LockMode,
    delay: Option<Duration>,
) -> Result<SemaphoreAttempt<L>, GrantError> {
    match (keys, mode, delay) {
        ([(key, LockLocation::Semaphore { permits })], LockMode::Exclusive, None) => {
            SemaphoreAttempt::begin(live, key, *permits).await
        }
        // No policy can request a permit in another way.
        _ => Err(GrantError::Service("permits are exclusive, of one key alone, and without a delay".into())),
    }
}

enum UncachedLockAttempt<L: ZkClient> {
    Single(LockAttempt<L>),
    Permit(SemaphoreAttempt<L>),
    Set(MultiKeyAttempt<L>),
    ExclusiveNode(ExclusiveNodeAttempt<L>),
}

impl<L: ZkClient> UncachedLockAttempt<L> {
    async fn acquire(&self, caller: &mut UncachedRequestObserver) -> Result<LockGrant, LockAttemptError> {
        match self {
            Self::Single(attempt) => attempt.acquire(caller).await,
            Self::Set(attempt) => attempt.acquire(caller).await,
            Self::ExclusiveNode(attempt) => attempt.acquire(caller).await,
            Self::Permit(attempt) => attempt.acquire(caller).await,
        }
    }

    /// Records that all requests that were sent under the nodes are over.
    fn mark_outcomes_known(&self) {
        match self {
            Self::Single(attempt) => attempt.mark_request_outcomes_known(),
            Self::Set(attempt) => attempt.mark_outcomes_known(),
            // These locks keep no grant record.
            Self::ExclusiveNode(_) | Self::Permit(_) => {}
        }
    }

    async fn remove_nodes(&self) {
        match self {
            Self::Single(attempt) => attempt.remove_nodes().await,
            Self::Set(attempt) => attempt.remove_nodes().await,
            Self::ExclusiveNode(attempt) => attempt.remove_nodes().await,
            Self::Permit(attempt) => attempt.remove_nodes().await,
        }
    }

    /// Waits until the holder has `ended`, and returns the cause. The wait goes on after the end of the session and
    /// after a panic: while the holder works, the session must not be closed, because that would pass the key on.
    async fn hold_until_ended(
        &self,
        live: &ActiveSession<L>,
        validity: &LockValidity,
        ended: oneshot::Receiver<bool>,
    ) -> TenureEndCause {
        let taken = Cell::new(false);
        let gone = |path: &str| {
            warn!(
                path = live.paths.redacted_path(path),
                "another client removed the lock node of this gateway"
            );
            taken.set(true);
            validity.revoke();
        };
        let watching = async {
            loop {
                match catch_panic(self.watch_own_nodes(&gone)).await {
                    Some(never) => match never {},
                    None => sleep(REFUSED_PAUSE).await,
                }
            }
        };
        let known = tokio::select! {
            known = ended => known.unwrap_or(false),
            () = watching => unreachable!("it watches for as long as it is polled"),
        };
        if known {
            self.mark_outcomes_known();
        }
        match known {
            _ if taken.get() => TenureEndCause::TakenAway,
            _ if live.ended.is_cancelled() => TenureEndCause::Session,
            true => TenureEndCause::Request,
            false => TenureEndCause::Retired,
        }
    }

    /// Calls `gone` when another client has removed a lock node of this request. Most requests are over before the
    /// first watch is set.
    async fn watch_own_nodes(&self, gone: &impl Fn(&str)) -> std::convert::Infallible {
        sleep(WATCH_AFTER).await;
        let candidates = match self {
            Self::Single(attempt) => std::slice::from_ref(&attempt.candidate),
            Self::Set(attempt) => attempt.candidates(),
            Self::ExclusiveNode(attempt) => {
                attempt.watch_own_node(gone).await;
                return std::future::pending().await;
            }
            Self::Permit(attempt) => {
                attempt.watch_own_nodes(gone).await;
                return std::future::pending().await;
            }
        };
        // All nodes of a set have one session. So if a single node is missing, another client has removed it.
        join_all(candidates.iter().map(|candidate| candidate.watch_own_node(gone))).await;
        std::future::pending().await
    }
}

/// A tenure that lasts longer than this watches its lock node, because every client that may write the parent can
/// delete the node.
const WATCH_AFTER: Duration = Duration::from_millis(50);

/// The request that waits for the lock, as the attempt's observer.
struct UncachedRequestObserver {
    /// `None` once it was answered.
    answer: Option<oneshot::Sender<Result<UncachedGrant, GrantError>>>,
    waits: bool,
    ahead: Arc<LockWaitProgress>,
    clock: SharedClock,
}

impl UncachedRequestObserver {
    /// Sends the answer. If the caller has gone, the error returns the answer.
    fn reply(
        &mut self,
        result: Result<UncachedGrant, GrantError>,
    ) -> Result<(), Result<UncachedGrant, GrantError>> {
        match self.answer.take() {
            Some(answer) => answer.send(result),
            None => Err(result),
        }
    }
}

impl LockAttemptObserver for UncachedRequestObserver {
    fn is_closed(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    async fn closed(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.closed().await;
        }
    }

    fn on_waiting(&mut self) -> Result<(), LockAttemptError> {
        self.ahead.set_blocked_by_holder();
        if self.waits { Ok(()) } else { Err(GrantError::Locked.into()) }
    }

    fn on_position(&mut self, nodes: usize) {
        self.ahead.set_nodes_ahead(nodes);
    }

    fn on_delay(&mut self, until: BootInstant) {
        self.ahead.set_delay(until);
        if !self.waits {
            let rest = until.since(self.clock.now());
            // The attempt goes on without its caller.
            drop(self.reply(Err(GrantError::Delayed(rest))));
        }
    }
}
