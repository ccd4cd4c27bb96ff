use std::{future::Future, pin::pin, task::Poll, time::Duration};

use fencegate_policies::plan::LockMode;
use fencegate_process::clock::{BootInstant, Clock as _};
use futures_util::poll;

use super::{
    fixture::{LeasedLockFixture, leased_lock},
    *,
};
use crate::manager::grant_guard::MultiRequestLock;

/// The result of a future that is ready at its first poll.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match poll!(pin!(future)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

async fn enter_now(lease: &LeasedLock, mode: LockMode) -> GrantGuard {
    poll_once(lease.start_request(mode)).await.expect("nobody is before it").expect("it holds").0
}

/// Requests under an exclusive lease run one after another in arrival order, and the lease ends after the last of
/// them.
#[tokio::test]
async fn lease_serves_requests_in_arrival_order() {
    let LeasedLockFixture { lease, mut over, .. } = leased_lock(LockMode::Exclusive);
    assert_eq!(lease.token().dispatch(), 1);
    let first = enter_now(&lease, LockMode::Exclusive).await;
    assert_eq!(first.next_dispatch().expect("a dispatch").token.dispatch(), 2);
    let mut second = pin!(lease.start_request(LockMode::Exclusive));
    let mut third = pin!(lease.start_request(LockMode::Shared));
    assert!(poll!(second.as_mut()).is_pending() && poll!(third.as_mut()).is_pending());
    first.mark_upstream_settled();
    drop(first);
    assert!(poll!(third.as_mut()).is_pending(), "it overtakes");
    let Poll::Ready(Ok((second, _))) = poll!(second.as_mut()) else { panic!("nobody is before it") };
    assert_eq!(second.next_dispatch().expect("a dispatch").token.dispatch(), 3);
    assert!(poll!(third.as_mut()).is_pending());
    second.mark_upstream_settled();
    drop(second);
    let Poll::Ready(Ok((third, LockMode::Exclusive))) = poll!(third.as_mut()) else { panic!("its turn") };
    lease.release_when_idle();
    assert!(over.try_recv().is_err(), "something runs under it");
    assert_eq!(enter_error(&lease).await, NestedCallbackError::Closed);
    third.mark_upstream_settled();
    drop(third);
    assert_eq!(over.try_recv(), Ok(true));
}

async fn enter_error(lease: &LeasedLock) -> NestedCallbackError {
    poll_once(lease.start_request(LockMode::Shared)).await.expect("it is over").expect_err("it is over")
}

/// Under a shared lease readers run together, and a writer is refused.
#[tokio::test]
async fn shared_lease_refuses_writers() {
    let LeasedLockFixture { lease, .. } = leased_lock(LockMode::Shared);
    let one = enter_now(&lease, LockMode::Shared).await;
    let other = enter_now(&lease, LockMode::Shared).await;
    let tokens = [&one, &other].map(|tenure| tenure.next_dispatch().expect("a dispatch").token.dispatch());
    assert_eq!(tokens, [2, 3]);
    let refused = poll_once(lease.start_request(LockMode::Exclusive)).await.expect("no wait");
    assert_eq!(refused.map(drop), Err(NestedCallbackError::Upgrade));
}

/// A request whose outcome is unknown retires the lease, and waiting requests are refused at once.
#[tokio::test]
async fn request_in_doubt_ends_lease() {
    let LeasedLockFixture { lease, mut over, .. } = leased_lock(LockMode::Exclusive);
    let first = enter_now(&lease, LockMode::Exclusive).await;
    first.next_dispatch().expect("a dispatch");
    let mut second = pin!(lease.start_request(LockMode::Exclusive));
    assert!(poll!(second.as_mut()).is_pending());
    drop(first);
    assert!(matches!(poll!(second.as_mut()), Poll::Ready(Err(NestedCallbackError::Closed))));
    assert!(lease.is_grant_retired());
    lease.release_when_idle();
    assert_eq!(over.try_recv(), Ok(false));
}

/// A request whose turn has come when the lease is closed is not dispatched, and the lease counts as settled.
#[tokio::test]
async fn closed_lease_dispatches_nothing() {
    let LeasedLockFixture { lease, mut over, .. } = leased_lock(LockMode::Exclusive);
    let turn = enter_now(&lease, LockMode::Exclusive).await;
    lease.stop_new_requests();
    assert!(turn.next_dispatch().is_none());
    assert!(over.try_recv().is_err(), "the client's part is held yet");
    drop(turn);
    lease.release_when_idle();
    assert_eq!(over.try_recv(), Ok(true), "nothing was sent");
}

/// The client's own token is no dispatch, so no callback is accepted with it; requests under the lease may call back.
#[tokio::test]
async fn client_token_is_not_in_flight() {
    let LeasedLockFixture { lease, .. } = leased_lock(LockMode::Exclusive);
    let shared: Arc<dyn MultiRequestLock> = lease.lock.clone();
    assert_eq!(
        shared.start_callback(lease.token(), LockMode::Exclusive).map(drop),
        Err(NestedCallbackError::NotInFlight)
    );
    let turn = enter_now(&lease, LockMode::Exclusive).await;
    let from = turn.next_dispatch().expect("a dispatch").token;
    let shared: Arc<dyn MultiRequestLock> = lease.lock.clone();
    assert!(
        shared.start_callback(from, LockMode::Exclusive).is_ok(),
        "what runs under it may be called back from"
    );
}

/// Past the session deadline no request is started under the lease, which is lost only when the session is revoked.
#[tokio::test]
async fn expired_session_starts_no_request() {
    let LeasedLockFixture { lease, proof, clock, over: _over } = leased_lock(LockMode::Exclusive);
    assert!(lease.is_held_at(clock.now()) && lease.session_expires_at() == BootInstant::from_nanos(1 << 50));
    clock.advance(Duration::from_nanos(1 << 50));
    assert!(!lease.is_held_at(clock.now()) && !lease.is_lost());
    let refused = poll_once(lease.start_request(LockMode::Exclusive)).await.expect("no wait");
    assert_eq!(refused.map(drop), Err(NestedCallbackError::Unproven));
    proof.revoke();
    assert!(lease.is_lost());
}
