//! Takes one lock of each kind.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_policies::{
    permits::PermitCount,
    plan::{LockLocation, LockMode},
};
use fencegate_recipe::{
    attempt::LockAttempt, exclusive_node::ExclusiveNodeAttempt, semaphore::SemaphoreAttempt,
};

use crate::{
    faulty_client::{FaultySession, SessionRequest, ZkRequestFate, is_heartbeat, key},
    supervised::{SupervisedSession, WaitingRequest},
};

pub(super) const T: Duration = Duration::from_secs(2);

/// The path of the node that is shared with other programs.
pub(super) const SHARED: &str = "/app/a";

#[derive(Debug, Clone, Copy)]
pub(super) enum LockKind {
    Native,
    Shared,
    Permit,
}

/// Each kind of lock, and the number of nodes that it has.
pub(super) const ALL: [(LockKind, usize); 3] = [
    (LockKind::Native, 1),
    // These two have a place in a queue, and a node beside it.
    (LockKind::Shared, 2),
    (LockKind::Permit, 2),
];

/// A lock that is held.
pub(super) enum HeldLock {
    One(LockAttempt<FaultySession>),
    Shared(ExclusiveNodeAttempt<FaultySession>),
    Permit(SemaphoreAttempt<FaultySession>),
}

pub(super) async fn hold(session: &SupervisedSession, lock: LockKind) -> HeldLock {
    let live = session.live();
    let key = key("a");
    let asker = &mut WaitingRequest::default();
    let (held, granted) = match lock {
        LockKind::Native => {
            let one = LockAttempt::begin(&live, &key, &LockLocation::Native, LockMode::Exclusive)
                .await
                .expect("room");
            let granted = one.acquire(asker).await;
            (HeldLock::One(one), granted)
        }
        LockKind::Shared => {
            let shared = ExclusiveNodeAttempt::begin(&live, &key, SHARED).await.expect("room");
            let granted = shared.acquire(asker).await;
            (HeldLock::Shared(shared), granted)
        }
        LockKind::Permit => {
            let permits = PermitCount::new(2).expect("within bounds");
            let permit = SemaphoreAttempt::begin(&live, &key, permits).await.expect("room");
            let granted = permit.acquire(asker).await;
            (HeldLock::Permit(permit), granted)
        }
    };
    granted.unwrap_or_else(|stop| panic!("{lock:?}: {stop:?}"));
    held
}

impl HeldLock {
    pub(super) async fn clear(&self) {
        match self {
            Self::One(one) => one.remove_nodes().await,
            Self::Shared(shared) => shared.remove_nodes().await,
            Self::Permit(permit) => permit.remove_nodes().await,
        }
    }

    pub(super) async fn watch_own(&self, gone: &impl Fn(&str)) {
        match self {
            Self::One(one) => one.candidate.watch_own_node(gone).await,
            Self::Shared(shared) => shared.watch_own_node(gone).await,
            Self::Permit(permit) => permit.watch_own_nodes(gone).await,
        }
    }
}

/// An attempt at a native lock that has sent nothing yet.
pub(super) async fn attempt(session: &SupervisedSession, name: &str) -> LockAttempt<FaultySession> {
    let begun =
        LockAttempt::begin(&session.live(), &key(name), &LockLocation::Native, LockMode::Exclusive).await;
    begun.expect("room")
}

/// The paths of all lock nodes.
pub(super) fn nodes(session: &SupervisedSession) -> Vec<String> {
    let mut nodes = session.lock_nodes();
    nodes.extend(session.ensemble.stat(SHARED).map(|_| SHARED.to_owned()));
    nodes
}

/// Counts the requests of the session from now on, except its heartbeats.
pub(super) fn count_requests(
    session: &SupervisedSession,
    counts: fn(SessionRequest<'_>) -> bool,
) -> Rc<Cell<u32>> {
    let counted = Rc::<Cell<u32>>::default();
    let count = counted.clone();
    session.doctor.set_rule(move |request| {
        count.set(count.get() + u32::from(!is_heartbeat(request) && counts(request)));
        assert!(count.get() < 1000, "again and again, without a pause");
        ZkRequestFate::Passes
    });
    counted
}

/// The attempts that the session has registered, and the bytes of their paths.
pub(super) fn registered_counts(session: &SupervisedSession) -> (usize, usize) {
    let registry = &session.live().registry;
    (registry.node_count(), registry.path_bytes())
}

/// The path of the parent node.
pub(super) fn parent_of(path: &str) -> String {
    path.rsplit_once('/').expect("absolute").0.to_owned()
}
