//! Requests, the task of their key, and the end of a session, in many interleavings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64 as Plain, Ordering},
    },
    time::Duration,
};

use fencegate_policies::plan::{Caching, Mode};
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::session::{clock::Boot, evidence::Evidence, proof::Proof};

/// Tries random schedules. An unoptimised build needs more stack than the scheduler gives.
fn explore(history: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(2000), config).run(history);
}

/// A clock that stands still.
#[derive(Debug)]
struct Still;

impl crate::session::clock::Clock for Still {
    fn now(&self) -> Boot {
        Boot::from_nanos(1000)
    }
}

const RULES: Caching = Caching {
    linger: Duration::ZERO,
    max_local: 2,
    max_hold: Duration::from_secs(1),
    max_tenure: Duration::from_secs(600),
};

fn key() -> ResourceKey {
    fencegate_policies::key::KeyTemplate::parse("one").expect("a template").expand(&()).expect("a key")
}

fn grant(epoch: u64) -> (Grant, Arc<Proof>) {
    let proof = Arc::new(Proof::until(1, Boot::from_nanos(2000)));
    let evidence = Arc::new(Evidence::of(proof.clone()));
    (Grant { epoch, sequence: 0, evidence, nodes: [].into(), contended: false }, proof)
}

/// Waits for its turn, works alone, ends.
fn request(table: &Table, key: &ResourceKey, at_work: &AtomicU32, last: &Plain) {
    let tenure = match table.enter(key, Mode::Exclusive, RULES, Patience::Behind(100), &"pay".into()) {
        Entered::Started(tenure) => tenure,
        Entered::Waiting { mut answer, place, .. } => {
            let tenure = loop {
                match answer.try_recv() {
                    Ok(answer) => break answer.expect("nobody refuses"),
                    Err(TryRecvError::Empty) => shuttle::thread::yield_now(),
                    Err(TryRecvError::Closed) => panic!("nobody is forgotten"),
                }
            };
            drop(place);
            tenure
        }
        Entered::Full | Entered::Busy => panic!("there is room"),
    };
    let token = tenure.dispatch().expect("a dispatch").token;
    assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
    // Epochs are small and dispatches few: one number orders both.
    let order = token.number() * 1000 + u64::from(token.dispatch());
    assert!(last.swap(order, Ordering::SeqCst) < order, "tokens grow");
    shuttle::thread::yield_now();
    at_work.fetch_sub(1, Ordering::SeqCst);
    tenure.known();
}

/// The task of the key: grants, contention from elsewhere, the end of each tenure.
fn attend(table: &Table, slot: &Arc<Slot>, served: &AtomicU32, requests: u32) {
    let mut epoch = 0;
    while served.load(Ordering::SeqCst) < requests || slot.wanted().is_some() {
        if let Some((mode, rules)) = slot.wanted() {
            epoch += 1;
            slot.granted(grant(epoch).0, mode, rules);
            slot.contended();
        }
        while !slot.take_if_due(|_| {}) {
            slot.start_waiting();
            shuttle::thread::yield_now();
        }
        shuttle::thread::yield_now();
    }
    assert!(table.leave(slot), "nothing is left");
}

#[test]
fn requests_are_served_one_at_a_time_with_growing_tokens() {
    explore(|| {
        const REQUESTS: u32 = 3;
        let table = Arc::new(Table::new(Arc::new(Still)));
        let (at_work, served, last) =
            (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default(), Arc::<Plain>::default());
        let threads: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let (table, at_work, served, last) =
                    (table.clone(), at_work.clone(), served.clone(), last.clone());
                shuttle::thread::spawn(move || {
                    request(&table, &key(), &at_work, &last);
                    served.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        // The slot exists as soon as somebody has entered; the real task gets it from that one.
        let slot = loop {
            let slot = unpoisoned(&table.shards[usize::from(key().shard()) % SHARDS]).get(&key()).cloned();
            match slot {
                Some(slot) => break slot,
                None => shuttle::thread::yield_now(),
            }
        };
        attend(&table, &slot, &served, REQUESTS);
        for thread in threads {
            thread.join().expect("a request");
        }
    });
}

#[test]
fn a_proof_that_was_revoked_never_holds_again_whatever_beats_come() {
    explore(|| {
        let (_, proof) = grant(1);
        let (beating, revoking) = (proof.clone(), proof.clone());
        let beats = shuttle::thread::spawn(move || {
            for to in [3000, 2500, 4000] {
                beating.extend(Boot::from_nanos(to));
            }
        });
        let end = shuttle::thread::spawn(move || revoking.revoke());
        let (mut held, mut lost) = (false, false);
        for _ in 0..4 {
            let holds = proof.holds(Boot::from_nanos(1500));
            assert!(!(lost && holds), "lost, and back");
            lost |= !holds;
            held |= holds;
        }
        beats.join().expect("beats");
        end.join().expect("end");
        assert!(proof.is_revoked() && !proof.holds(Boot::from_nanos(1)), "held before: {held}");
    });
}
