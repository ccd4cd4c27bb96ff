//! Keys that one session uses again and again keep their parents. Locking such a key takes half as many steps, and
//! is as safe as locking any other.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{
    CostFixture, KEYS, ROUND_TRIP, ZkRequestCounts, acquire, is_of_locks, lost_answers, release, session,
};
use crate::{
    faulty_client::{SessionRequest, ZkRequestFate},
    simulated_time,
};

/// Locking a key that is used often costs one create and one list, in one round trip, and one delete to release it.
#[test]
fn recurring_key_costs_create_and_delete() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        bench.reuse_all_keys().await;
        let tally = bench.count_requests();
        let began = Instant::now();
        let tenure = bench.acquire(1).await;
        assert_eq!(began.elapsed(), ROUND_TRIP);
        assert_eq!(tally.take(), ZkRequestCounts { creates: 1, lists: 1, ..ZkRequestCounts::default() });
        release(tenure);
        sleep(ROUND_TRIP * 10).await;
        assert_eq!(tally.take(), ZkRequestCounts { transactions: 1, ..ZkRequestCounts::default() });
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
    });
}

/// For keys that are used often, transactions have one step for each node that is created or removed, and no other.
#[test]
fn recurring_keys_halve_step_count() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        bench.reuse_all_keys().await;
        let counted = Rc::<Cell<usize>>::default();
        let steps = counted.clone();
        let tally = Rc::<RefCell<ZkRequestCounts>>::default();
        let counting = tally.clone();
        bench.doctor.set_rule(move |request| {
            if is_of_locks(request) {
                counting.borrow_mut().count_request(request);
            }
            match request {
                SessionRequest::Commit { steps: of } if is_of_locks(request) => {
                    steps.set(steps.get() + of.len())
                }
                SessionRequest::Create { .. } => steps.set(steps.get() + 1),
                _ => {}
            }
            ZkRequestFate::Passes
        });
        bench.use_all_at_once().await;
        sleep(ROUND_TRIP * 10).await;
        assert_eq!(counted.get(), 2 * KEYS as usize);
        // A few requests create their node alone, because no other request is in flight at that moment; all others
        // share a transaction and a list.
        assert!(tally.borrow().requests() <= KEYS / 2, "{:?}", tally.borrow());
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
    });
}

/// If another client or the server has removed a parent that is kept, every lock is still granted.
#[test]
fn missing_kept_parent_fails_no_lock() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        bench.reuse_all_keys().await;
        let stranger = bench.connect_stranger().await;
        for parent in bench.remaining_paths().into_iter().step_by(5) {
            stranger.delete(&parent).await.expect("removed");
        }
        let began = Instant::now();
        let tenures = join_all((0..KEYS).map(|key| bench.acquire(key))).await;
        assert!(began.elapsed() <= ROUND_TRIP * 5, "{:?}", began.elapsed());
        assert_eq!(bench.remaining_paths().len(), 2 * KEYS as usize);
        tenures.into_iter().for_each(release);
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
    });
}

/// The parent of a key that other clients also use is removed with the last node, until this session has used the
/// key twice as often as is needed for a key of its own.
#[test]
fn parent_of_shared_key_is_removed() {
    const ENOUGH_ALONE: u32 = 8;
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        let stranger = bench.connect_stranger().await;
        for turn in 1..2 * ENOUGH_ALONE {
            let tenure = bench.acquire(1).await;
            let parent = bench.remaining_paths().swap_remove(0);
            let theirs = format!("{parent}/_c_00000000-0000-4000-8000-000000000000-lock-");
            if turn == ENOUGH_ALONE / 2 {
                stranger.create(&theirs, b"", NodeCreateMode::EphemeralSequential).await.expect("made");
            }
            release(tenure);
            sleep(ROUND_TRIP * 10).await;
            if turn == ENOUGH_ALONE / 2 {
                let below = stranger.children(&parent).await.expect("there");
                stranger.delete(&format!("{parent}/{}", below[0])).await.expect("theirs");
                stranger.delete(&parent).await.expect("empty");
            }
            assert_eq!(bench.remaining_paths(), [""; 0], "turn {turn}");
        }
        bench.locks.stop().await;
    });
}

/// If other clients have used a key whose parent is kept, the numbers of its nodes show it, and a request queues
/// behind the nodes that exist.
#[test]
fn kept_parent_shows_foreign_nodes() {
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        bench.reuse_all_keys().await;
        let stranger = bench.connect_stranger().await;
        let parents = bench.remaining_paths();
        let mut theirs = Vec::new();
        for (number, parent) in parents.iter().enumerate() {
            let node = format!("{parent}/_c_00000000-0000-4000-8000-000000000000-lock-");
            let made = stranger.create(&node, b"", NodeCreateMode::EphemeralSequential).await.expect("made");
            let path = format!("{node}{:010}", made.sequence);
            match number % 2 {
                0 => stranger.delete(&path).await.expect("gone again"),
                _ => theirs.push(path),
            }
        }
        let begun = Instant::now();
        let taken: Vec<_> = (0..KEYS)
            .map(|key| {
                let taking = bench.acquire(key);
                async { (taking.await, begun.elapsed()) }
            })
            .collect();
        let releases = async {
            sleep(ROUND_TRIP * 20).await;
            for path in &theirs {
                stranger.delete(path).await.expect("held until now");
            }
        };
        let (taken, ()) = tokio::join!(join_all(taken), releases);
        let (early, late): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|(_, after)| *after < ROUND_TRIP * 20);
        assert_eq!((early.len(), late.len()), (KEYS as usize / 2, KEYS as usize / 2));
        assert!(early.iter().all(|(_, after)| *after <= ROUND_TRIP * 4), "a wrong number costs a round trip");
        early.into_iter().chain(late).for_each(|(tenure, _)| release(tenure));
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
    });
}

/// If the answer to a shared transaction below kept parents is lost, no node is left.
#[test]
fn lost_transaction_leaves_no_node() {
    for fate in lost_answers() {
        simulated_time::run(async {
            let bench = CostFixture::start().await;
            bench.reuse_all_keys().await;
            bench.run_with_two_lost_answers(fate).await;
            bench.assert_nothing_kept().await;
            bench.locks.stop().await;
        });
    }
}

/// Two sessions that use the same keys alternately, without ever waiting for each other, still share transactions. A
/// parent that one session keeps costs the other one a transaction, so both keep parents less and less often.
#[test]
fn alternating_sessions_still_share_transactions() {
    const ROUNDS: u32 = 200;
    simulated_time::run(async {
        let bench = CostFixture::start().await;
        let other = session(&bench.ensemble, &bench.doctor).await;
        bench.doctor.wire().delay(super::WAY..super::WAY);
        let mut tally = bench.count_requests();
        for round in 0..2 * ROUNDS {
            if round == ROUNDS {
                tally = bench.count_requests();
            }
            let locks = if round % 2 == 0 { &bench.locks } else { &other };
            join_all((0..KEYS).map(async |key| release(acquire(locks, key).await))).await;
            sleep(ROUND_TRIP * 10).await;
        }
        let per_lock = f64::from(tally.borrow().requests()) / f64::from(KEYS * ROUNDS);
        eprintln!("{:?}: {per_lock:.2} requests per lock", tally.borrow());
        assert!(per_lock < 0.4, "{:?}", tally.borrow());
        bench.assert_nothing_kept().await;
        bench.locks.stop().await;
        other.stop().await;
    });
}
