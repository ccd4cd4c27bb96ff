//! A set of keys holds with all of its nodes, which one transaction created, or not at all.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_policies::plan::{LockLocation, LockMode, LockReusePolicy};
use fencegate_recipe::{grant::LockAttemptError, set::MultiKeyAttempt};
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::{
    error::GrantError,
    session::client::{MultiOp, NodeCreateMode, ZkClient},
};
use tokio::time::{Instant, sleep};

use super::fixture::{T, attempt, count_requests, nodes, parent_of, registered_counts};
use crate::{
    faulty_client::{
        FaultInjector, FaultyClient, FaultySession, GatewayLockStack, SessionRequest, ZkRequestFate, key,
        unanswered,
    },
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

const KEYS: [&str; 2] = ["a", "b"];

/// The removal of any node of a held set ends the lock validity of its dispatches.
#[test]
fn removal_of_any_node_ends_validity() {
    for stolen in 0..2 {
        simulated_time::run(async {
            let ensemble = SimEnsemble::start(EnsembleSettings::default());
            let library =
                FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: FaultInjector::new() };
            let locks = GatewayLockStack::new(library).await;
            let held = locks.acquire(&KEYS, LockReusePolicy::Strict).await.expect("free");
            let dispatch = held.next_dispatch().expect("it holds");
            // Wait until the set has set its watches, which it does only if it holds for a while.
            sleep(T).await;
            assert!(dispatch.validity.may_send_at(locks.clock.now()));
            ensemble.delete_as_other_client(&held.node_paths()[stolen]);
            sleep(T / 10).await;
            assert!(!dispatch.validity.may_send_at(locks.clock.now()), "{stolen}");
            drop((dispatch, held));
            locks.stop().await;
        });
    }
}

/// If the client library has repeated the transaction, both were done, and another client has removed a node of the
/// first, then the set does not hold: the remaining nodes come from two transactions, which have no common order.
#[test]
fn nodes_of_two_transactions_are_no_set() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        // The set before creates the folders of the keys.
        let live = session.live();
        let before = begin(&session).await;
        before.acquire(&mut WaitingRequest::default()).await.expect("free");
        let held = nodes(&session);
        let deaf = Rc::new(Cell::new(true));
        let still = deaf.clone();
        session.doctor.set_rule(move |request| match request {
            SessionRequest::Commit { steps } if still.get() && steps.iter().all(is_sequential) => {
                ZkRequestFate::Done(unanswered())
            }
            SessionRequest::Children { .. } if still.get() => ZkRequestFate::Refused(unanswered()),
            _ => ZkRequestFate::Passes,
        });
        let set = begin(&session).await;
        let asker = &mut WaitingRequest::default();
        let (told, ()) = tokio::join!(set.acquire(asker), async {
            sleep(T / 4).await;
            let mut made = nodes(&session);
            made.retain(|path| !held.contains(path));
            session.doctor.set_rule(|_| ZkRequestFate::Passes);
            let again: Vec<_> = made.iter().map(|path| &path[..path.len() - 10]).collect();
            let steps = again.iter().map(|path| MultiOp::Create {
                path,
                data: b"",
                kind: NodeCreateMode::EphemeralSequential,
            });
            live.client.commit(&steps.collect::<Vec<_>>()).await.expect("made");
            session.ensemble.delete_as_other_client(&made[0]);
            deaf.set(false);
            before.remove_nodes().await;
        });
        assert!(matches!(told, Err(LockAttemptError::NotGranted(GrantError::Lost))), "{told:?}");
        set.remove_nodes().await;
        assert_eq!(nodes(&session), [""; 0]);
        drop((before, set, live));
        session.end().await;
    });
}

async fn begin(session: &SupervisedSession) -> MultiKeyAttempt<FaultySession> {
    let keys = KEYS.map(|name| (key(name), LockLocation::Native));
    MultiKeyAttempt::begin(&session.live(), &keys, LockMode::Exclusive).await.expect("room")
}

/// A set that waits costs one transaction, a read of each node, a list of each parent and a watch.
#[test]
fn set_below_parents_takes_one_transaction() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let first = begin(&session).await;
        let asker = &mut WaitingRequest::default();
        let granted = first.acquire(asker).await.expect("free");
        assert!(!granted.contended);
        let asked = count_requests(&session, |_| true);
        let second = begin(&session).await;
        let asker = &mut WaitingRequest::default();
        let (granted, ()) = tokio::join!(second.acquire(asker), async {
            sleep(T / 2).await;
            // One transaction, two reads, two lists, and a watch at the first key, at which the set waits.
            assert_eq!(asked.get(), 1 + 2 + 2 + 1);
            first.remove_nodes().await;
        });
        assert!(granted.expect("its turn").contended);
        second.remove_nodes().await;
        drop((first, second));
        session.end().await;
    });
}

/// A free set takes two round trips, however many keys it has: one for the transaction, and one for all reads after
/// it.
#[test]
fn free_set_takes_two_round_trips() {
    const ONE_WAY: Duration = Duration::from_millis(10);
    for count in [1, 4, 16] {
        simulated_time::run(async move {
            let session = SupervisedSession::start(T).await;
            let keys: Vec<_> =
                (0..count).map(|number| (key(&format!("k{number}")), LockLocation::Native)).collect();
            let begin = async || {
                MultiKeyAttempt::begin(&session.live(), &keys, LockMode::Exclusive).await.expect("room")
            };
            // Creates the nodes above the parents, so that the measured set need not.
            let before = begin().await;
            before.acquire(&mut WaitingRequest::default()).await.expect("free");
            before.remove_nodes().await;
            drop(before);
            let set = begin().await;
            session.doctor.wire().delay(ONE_WAY..ONE_WAY);
            let start = Instant::now();
            let granted = set.acquire(&mut WaitingRequest::default()).await.expect("free");
            assert_eq!((start.elapsed(), granted.contended), (ONE_WAY * 4, false), "{count} keys");
            assert_eq!(nodes(&session).len(), count);
            session.doctor.wire().delay(Duration::ZERO..Duration::ZERO);
            set.remove_nodes().await;
            drop(set);
            session.end().await;
        });
    }
}

/// If another client removes a node of a set while the set waits at another key, the set does not hold.
#[test]
fn removal_during_wait_is_seen() {
    for stolen in 0..2 {
        simulated_time::run(async move {
            let session = SupervisedSession::start(T).await;
            // The set waits at the key whose node is not removed.
            let blocked = KEYS[1 - stolen];
            let before = attempt(&session, blocked).await;
            before.acquire(&mut WaitingRequest::default()).await.expect("free");
            let held = nodes(&session);
            let set = begin(&session).await;
            let asker = &mut WaitingRequest::default();
            let (told, ()) = tokio::join!(set.acquire(asker), async {
                sleep(T / 4).await;
                let parent = format!("/{}", KEYS[stolen]);
                let made = nodes(&session).into_iter().filter(|path| !held.contains(path));
                let of_key: Vec<_> = made.filter(|path| parent_of(path).ends_with(&parent)).collect();
                assert_eq!(of_key.len(), 1, "{of_key:?}");
                session.ensemble.delete_as_other_client(&of_key[0]);
                sleep(T / 4).await;
                before.remove_nodes().await;
            });
            assert!(
                matches!(told, Err(LockAttemptError::NotGranted(GrantError::Lost))),
                "{blocked} was waited for: {told:?}"
            );
            set.remove_nodes().await;
            assert_eq!(nodes(&session), [""; 0]);
            drop((before, set));
            session.end().await;
        });
    }
}

/// A set whose transaction was not answered looks for its nodes, and creates them if they do not exist.
#[test]
fn set_finds_nodes_after_lost_answer() {
    for fate in [ZkRequestFate::Done(unanswered()), ZkRequestFate::Refused(unanswered())] {
        simulated_time::run(async {
            let session = SupervisedSession::start(T).await;
            // Creates the folders of the keys.
            let before = begin(&session).await;
            before.acquire(&mut WaitingRequest::default()).await.expect("free");
            before.remove_nodes().await;
            drop(before);
            let asked = Cell::new(0);
            let answer = fate.clone();
            session.doctor.set_rule(move |what| match what {
                SessionRequest::Commit { steps } if steps.iter().all(is_sequential) => {
                    asked.set(asked.get() + 1);
                    if asked.get() < 2 { answer.clone() } else { ZkRequestFate::Passes }
                }
                _ => ZkRequestFate::Passes,
            });
            let set = begin(&session).await;
            let asker = &mut WaitingRequest::default();
            set.acquire(asker).await.unwrap_or_else(|stop| panic!("{fate:?}: {stop:?}"));
            assert_eq!(nodes(&session).len(), 2, "{fate:?}");
            set.remove_nodes().await;
            drop(set);
            assert_eq!((nodes(&session).len(), registered_counts(&session)), (0, (0, 0)), "{fate:?}");
            session.end().await;
        });
    }
}

/// A set that is dropped without removing its nodes leaves them, because they may still hold.
#[test]
fn dropped_set_keeps_its_nodes() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let set = begin(&session).await;
        set.acquire(&mut WaitingRequest::default()).await.expect("free");
        drop(set);
        sleep(T * 10).await;
        assert_eq!((nodes(&session).len(), registered_counts(&session).0), (2, 1));
        session.end().await;
    });
}

fn is_sequential(step: &MultiOp<'_>) -> bool {
    matches!(step, MultiOp::Create { kind: NodeCreateMode::EphemeralSequential, .. })
}
