//! A waiting request sends only what it needs, and is granted only while its session deadline is valid.

use fencegate_policies::{
    permits::PermitCount,
    plan::{LockLocation, LockMode},
};
use fencegate_recipe::{attempt::LockAttempt, semaphore::SemaphoreAttempt};
use fencegate_zookeeper::{
    error::GrantError,
    limits::{MAX_SESSION_PATH_BYTES, RESERVED_PATH_BYTES},
};
use tokio::time::{sleep, timeout};

use super::fixture::{ALL, LockKind, T, attempt, count_requests, hold, nodes};
use crate::{
    faulty_client::{FaultySession, SessionRequest, ZkRequestFate, is_heartbeat, key, throttled},
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

async fn semaphore(session: &SupervisedSession) -> SemaphoreAttempt<FaultySession> {
    let permits = PermitCount::new(2).expect("within bounds");
    SemaphoreAttempt::begin(&session.live(), &key("a"), permits).await.expect("room")
}

/// Only a request that may be forwarded to the holder's gateway reads the holder's node.
#[test]
fn local_waiter_does_not_read_holder() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let holds = hold(&session, LockKind::Native).await;
        let reads = count_requests(
            &session,
            |request| matches!(request, SessionRequest::Data { path } if path.contains("-w-")),
        );
        let waits = attempt(&session, "a").await;
        let asker = &mut WaitingRequest::default();
        let (granted, ()) = tokio::join!(waits.acquire(asker), async {
            sleep(T).await;
            holds.clear().await;
        });
        granted.expect("its turn");
        assert_eq!(reads.get(), 0);
        waits.remove_nodes().await;
        drop((waits, holds));
        session.end().await;
    });
}

/// A request waits without polling if a holder has lost its place in the queue but not its permit, so that the queue
/// has a free place and no permit is free.
#[test]
fn request_without_free_permit_waits_quietly() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let first = hold(&session, LockKind::Permit).await;
        let second = hold(&session, LockKind::Permit).await;
        let place = nodes(&session).into_iter().find(|path| path.contains("-s2-")).expect("in line");
        session.ensemble.delete_as_other_client(&place);
        let asked = count_requests(&session, |_| true);
        let third = semaphore(&session).await;
        let asker = &mut WaitingRequest::default();
        let (granted, ()) = tokio::join!(third.acquire(asker), async {
            sleep(T).await;
            assert!(asked.get() < 10, "{} requests in {T:?}", asked.get());
            first.clear().await;
        });
        granted.expect("a permit is free");
        third.remove_nodes().await;
        second.clear().await;
        assert_eq!(nodes(&session), [""; 0]);
        drop((first, second, third));
        session.end().await;
    });
}

/// The nodes of a permit have varying versions, so that a late delete, which states a version, mostly misses.
/// Versions stay small, because each write is a step of the transaction.
#[test]
fn permit_node_versions_vary() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let mut versions = Vec::new();
        for _ in 0..12 {
            let held = hold(&session, LockKind::Permit).await;
            let permit = nodes(&session).into_iter().find(|path| path.contains("/permit-")).expect("held");
            versions.push(session.ensemble.stat(&permit).expect("there").version);
            held.clear().await;
        }
        assert!(versions.iter().all(|version| *version < 8), "{versions:?}");
        assert!(versions.iter().any(|version| *version != versions[0]), "{versions:?}");
        session.end().await;
    });
}

/// No lock is granted while the heartbeats of the session are not acknowledged, because the session may have ended.
#[test]
fn no_grant_without_valid_session_deadline() {
    for (lock, _) in ALL {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            session.doctor.set_rule(|asked| match is_heartbeat(asked) {
                true => ZkRequestFate::Refused(throttled()),
                false => ZkRequestFate::Passes,
            });
            let deadline = session.live().session_deadline.clone();
            let clock = session.live().clock.clone();
            while deadline.is_valid_at(clock.now()) {
                sleep(T / 100).await;
            }
            let mut asked = Box::pin(hold(&session, lock));
            assert!(timeout(T / 10, &mut asked).await.is_err(), "{lock:?}: granted");
            session.doctor.set_rule(|_| ZkRequestFate::Passes);
            let held = timeout(T, asked).await.expect("it is proven");
            held.clear().await;
            drop((held, deadline, clock));
            session.end().await;
        });
    }
}

/// A session may use its whole capacity for paths, and not one byte more.
#[test]
fn path_capacity_is_exact() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let mut begun = Vec::new();
        let live = session.live();
        let left = || MAX_SESSION_PATH_BYTES - RESERVED_PATH_BYTES - live.registry.path_bytes();
        let named = |length: usize| format!("{:0>length$}", 0);
        begun.push(attempt(&session, &named(100)).await);
        let without_name = live.registry.path_bytes() - 100;
        while left() > 1000 {
            begun.push(attempt(&session, &named(400)).await);
        }
        begun.push(attempt(&session, &named(300)).await);
        begun.push(attempt(&session, &named(left() - without_name)).await);
        assert_eq!(left(), 0);
        let refused =
            LockAttempt::begin(&live, &key("a"), &LockLocation::Native, LockMode::Exclusive).await.map(drop);
        assert!(matches!(refused, Err(GrantError::KeyLimit(_))), "{refused:?}");
        drop((begun, live));
        session.end().await;
    });
}
