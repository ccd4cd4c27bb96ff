//! Tests of requests, the task of their key, and the end of a session, in many interleavings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64 as Plain, Ordering},
    },
    time::Duration,
};

use fencegate_policies::plan::{CachedHoldLimits, LockLocation, LockMode};
use fencegate_process::clock::BootInstant;
use tokio::sync::oneshot::error::TryRecvError;

use super::{table::KeySlotTable, *};
use fencegate_zookeeper::{
    error::GrantError,
    peer_endpoint::HolderRoute,
    session::{lock_validity::LockValidity, session_deadline::SessionDeadline},
};
use shuttle::rand::Rng;

/// Runs `history` in random schedules, with a larger stack than the scheduler's default, which an unoptimised build
/// needs.
fn explore(history: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(2000), config).run(history);
}

/// A clock whose time never changes.
#[derive(Debug)]
struct FixedClock;

impl fencegate_process::clock::Clock for FixedClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(1000)
    }
}

const RULES: CachedHoldLimits = CachedHoldLimits {
    linger: Duration::ZERO,
    max_local: 2,
    max_hold: Duration::from_secs(1),
    max_tenure: Duration::from_secs(600),
};

fn key() -> ResourceKey {
    fencegate_policies::key::KeyTemplate::parse("one").expect("a template").expand(&()).expect("a key")
}

fn grant(epoch: u64) -> (LockGrant, Arc<SessionDeadline>) {
    let deadline = Arc::new(SessionDeadline::new(1, BootInstant::from_nanos(2000)));
    let validity = Arc::new(LockValidity::new(deadline.clone()));
    (LockGrant { epoch, sequence: 0, permit: None, validity, nodes: [].into(), contended: false }, deadline)
}

fn wants(waits: LockWaitPlace, route: &Arc<str>) -> LocalLockRequest<'_> {
    let mode = LockMode::Exclusive;
    let patience = QueueJoinPolicy::QueueBehind(100);
    LocalLockRequest { mode, rules: RULES, patience, waits, delay: None, route }
}

/// Makes one request. It waits for its turn, works alone, and ends; or it is forwarded once to another gateway.
/// Returns whether it was served here.
fn request(
    table: &KeySlotTable,
    key: &ResourceKey,
    waits: LockWaitPlace,
    at_work: &AtomicU32,
    last: &Plain,
) -> bool {
    let tenure = match table.enter_queue(key, &LockLocation::Native, wants(waits, &"pay".into())) {
        EnterLocalQueueOutcome::Started(tenure) => tenure,
        EnterLocalQueueOutcome::NotHolder if waits == LockWaitPlace::AtHolder => return false,
        EnterLocalQueueOutcome::Waiting { mut answer, place, .. } => {
            let tenure = loop {
                match answer.try_recv() {
                    Ok(Ok(tenure)) => break tenure,
                    Ok(Err(GrantError::Elsewhere(_))) if waits == LockWaitPlace::Anywhere => return false,
                    Ok(Err(GrantError::NotHolder)) if waits == LockWaitPlace::AtHolder => return false,
                    Ok(Err(error)) => panic!("nobody is refused: {error}"),
                    Err(TryRecvError::Empty) => shuttle::thread::yield_now(),
                    Err(TryRecvError::Closed) => panic!("nobody is forgotten"),
                }
            };
            drop(place);
            tenure
        }
        EnterLocalQueueOutcome::QueueFull
        | EnterLocalQueueOutcome::Busy
        | EnterLocalQueueOutcome::NotHolder => {
            panic!("there is room")
        }
    };
    let token = tenure.next_dispatch().expect("a dispatch").token;
    assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
    // Epochs and dispatch numbers are small here, so one number can hold both in order.
    let order = token.number() * 1000 + u64::from(token.dispatch());
    assert!(last.swap(order, Ordering::SeqCst) < order, "tokens grow");
    shuttle::thread::yield_now();
    at_work.fetch_sub(1, Ordering::SeqCst);
    tenure.mark_upstream_settled();
    true
}

/// Simulates the task of the key: grants, contention by a remote contender, the end of each tenure.
fn attend(table: &KeySlotTable, slot: &Arc<KeySlot>, served: &AtomicU32, requests: u32) {
    let mut epoch = 0;
    while served.load(Ordering::SeqCst) < requests || slot.first_waiting_request().is_some() {
        if let Some(wanted) = slot.first_waiting_request() {
            epoch += 1;
            slot.set_granted(grant(epoch).0, wanted);
            slot.mark_contended(false);
        }
        while !slot.end_tenure_if_due(|_| {}) {
            slot.start_waiting_requests();
            shuttle::thread::yield_now();
        }
        shuttle::thread::yield_now();
    }
    assert!(table.remove_if_idle(slot), "nothing is left");
}

/// Requests for a key run one at a time, and their tokens grow.
#[test]
fn requests_run_serially_with_growing_tokens() {
    explore(|| {
        const REQUESTS: u32 = 3;
        let table = Arc::new(KeySlotTable::new(Arc::new(FixedClock)));
        let at_work = Arc::<AtomicU32>::default();
        let served = Arc::<AtomicU32>::default();
        let last = Arc::<Plain>::default();
        let threads: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let table = table.clone();
                let at_work = at_work.clone();
                let served = served.clone();
                let last = last.clone();
                shuttle::thread::spawn(move || {
                    assert!(request(&table, &key(), LockWaitPlace::Here, &at_work, &last));
                    served.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        // The slot exists as soon as the first request has entered. In production that request hands the slot to the
        // task.
        let slot = loop {
            match table.slot(&key()) {
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

/// Simulates the task of the key like [`attend`], but now and then another gateway is ahead.
fn attend_behind(table: &KeySlotTable, slot: &Arc<KeySlot>, served: &AtomicU32, requests: u32) {
    let pass =
        fencegate_zookeeper::peer_secret::PeerSecret::new(&fencegate_process::randomness::SystemRandomness);
    let member = "gw-2-02".into();
    let address = "gw-2:9910".into();
    let route = HolderRoute { gateway: "gw-2".into(), member, address, secret: pass };
    let mut epoch = 0;
    while served.load(Ordering::SeqCst) < requests || slot.first_waiting_request().is_some() {
        let Some(wanted) = slot.first_waiting_request() else {
            shuttle::thread::yield_now();
            continue;
        };
        let behind = shuttle::rand::thread_rng().gen_bool(0.5);
        let gone = behind
            && (slot.report_holder_ahead().is_err()
                || (slot.take_holder_lookup_request() && slot.forward_waiting(&route).is_err()));
        if !gone && slot.first_waiting_request().is_some() {
            epoch += 1;
            slot.set_granted(grant(epoch).0, wanted);
            while !slot.end_tenure_if_due(|_| {}) {
                slot.start_waiting_requests();
                shuttle::thread::yield_now();
            }
        }
    }
    assert!(table.remove_if_idle(slot), "nothing is left");
}

/// Each request is either served here or forwarded, and none is lost; a request that must wait here is never
/// forwarded.
#[test]
fn every_request_is_served_or_forwarded() {
    explore(|| {
        const KINDS: [LockWaitPlace; 4] =
            [LockWaitPlace::Here, LockWaitPlace::Anywhere, LockWaitPlace::AtHolder, LockWaitPlace::Anywhere];
        let table = Arc::new(KeySlotTable::new(Arc::new(FixedClock)));
        let at_work = Arc::<AtomicU32>::default();
        let served = Arc::<AtomicU32>::default();
        let last = Arc::<Plain>::default();
        let threads = KINDS.map(|waits| {
            let table = table.clone();
            let at_work = at_work.clone();
            let served = served.clone();
            let last = last.clone();
            shuttle::thread::spawn(move || {
                let here = request(&table, &key(), waits, &at_work, &last);
                assert!(here || waits != LockWaitPlace::Here, "it waits here");
                served.fetch_add(1, Ordering::SeqCst);
            })
        });
        let slot = loop {
            match table.slot(&key()) {
                Some(slot) => break slot,
                None => shuttle::thread::yield_now(),
            }
        };
        attend_behind(&table, &slot, &served, KINDS.len() as u32);
        for thread in threads {
            thread.join().expect("a request");
        }
    });
}

/// A session deadline that was revoked never becomes valid again, whatever heartbeats arrive meanwhile.
#[test]
fn revoked_deadline_ignores_concurrent_heartbeats() {
    explore(|| {
        let (_, deadline) = grant(1);
        let beating = deadline.clone();
        let revoking = deadline.clone();
        let beats = shuttle::thread::spawn(move || {
            for to in [3000, 2500, 4000] {
                beating.extend(BootInstant::from_nanos(to));
            }
        });
        let end = shuttle::thread::spawn(move || revoking.revoke());
        let mut held = false;
        let mut lost = false;
        for _ in 0..4 {
            let holds = deadline.is_valid_at(BootInstant::from_nanos(1500));
            assert!(!(lost && holds), "lost, and back");
            lost |= !holds;
            held |= holds;
        }
        beats.join().expect("beats");
        end.join().expect("end");
        assert!(
            deadline.is_revoked() && !deadline.is_valid_at(BootInstant::from_nanos(1)),
            "held before: {held}"
        );
    });
}

/// After keys were renamed, new tokens are larger than all tokens under the old names. A lock node that waited during
/// the change would make a smaller token, so it is not used.
#[test]
fn node_predating_key_change_is_unused() {
    explore(|| {
        const REQUESTS: u32 = 2;
        let table = Arc::new(KeySlotTable::new(Arc::new(FixedClock)));
        // The number of ZooKeeper's last transaction, and that number at the last change of keys.
        let epochs = Arc::new(Plain::new(1));
        let floor = Arc::<Plain>::default();
        let served = Arc::<AtomicU32>::default();
        let changes = {
            let table = table.clone();
            let epochs = epochs.clone();
            let floor = floor.clone();
            shuttle::thread::spawn(move || {
                for _ in 0..2 {
                    let done = epochs.fetch_add(1, Ordering::SeqCst);
                    table.close_all_tenures();
                    floor.store(done, Ordering::SeqCst);
                }
            })
        };
        let requests = [(); REQUESTS as usize].map(|()| {
            let table = table.clone();
            let floor = floor.clone();
            let served = served.clone();
            shuttle::thread::spawn(move || {
                let opened = floor.load(Ordering::SeqCst);
                let tenure = match table.enter_queue(
                    &key(),
                    &LockLocation::Native,
                    wants(LockWaitPlace::Here, &"pay".into()),
                ) {
                    EnterLocalQueueOutcome::Started(tenure) => tenure,
                    EnterLocalQueueOutcome::Waiting { mut answer, place, .. } => loop {
                        match answer.try_recv() {
                            Ok(answer) => {
                                drop(place);
                                break answer.expect("nobody is refused");
                            }
                            Err(_) => shuttle::thread::yield_now(),
                        }
                    },
                    _ => panic!("there is room"),
                };
                let token = tenure.next_dispatch().expect("a dispatch").token;
                assert!(token.number() > opened, "{token} after {opened}");
                tenure.mark_upstream_settled();
                drop(tenure);
                served.fetch_add(1, Ordering::SeqCst);
            })
        });
        let slot = loop {
            match table.slot(&key()) {
                Some(slot) => break slot,
                None => shuttle::thread::yield_now(),
            }
        };
        while served.load(Ordering::SeqCst) < REQUESTS {
            if let Some(wanted) = slot.first_waiting_request() {
                let epoch = epochs.fetch_add(1, Ordering::SeqCst) + 1;
                shuttle::thread::yield_now();
                slot.set_granted(grant(epoch).0, wanted);
                while !slot.end_tenure_if_due(|_| {}) {
                    slot.start_waiting_requests();
                    shuttle::thread::yield_now();
                }
            }
            shuttle::thread::yield_now();
        }
        for thread in requests.into_iter().chain([changes]) {
            thread.join().expect("it ends");
        }
    });
}

/// When a service answers while its callback still works, no other request is started before the callback has ended.
#[test]
fn callback_keeps_key_after_caller_ends() {
    explore(|| {
        const REQUESTS: u32 = 2;
        let table = Arc::new(KeySlotTable::new(Arc::new(FixedClock)));
        let at_work = Arc::<AtomicU32>::default();
        let served = Arc::<AtomicU32>::default();
        let threads: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let table = table.clone();
                let at_work = at_work.clone();
                let served = served.clone();
                shuttle::thread::spawn(move || {
                    calling(&table, &at_work);
                    served.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        let slot = loop {
            match table.slot(&key()) {
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

fn alone(at_work: &AtomicU32) {
    assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
    shuttle::thread::yield_now();
    at_work.fetch_sub(1, Ordering::SeqCst);
}

fn calling(table: &Arc<KeySlotTable>, at_work: &Arc<AtomicU32>) {
    let outer =
        match table.enter_queue(&key(), &LockLocation::Native, wants(LockWaitPlace::Here, &"pay".into())) {
            EnterLocalQueueOutcome::Started(tenure) => tenure,
            EnterLocalQueueOutcome::Waiting { mut answer, place, .. } => loop {
                match answer.try_recv() {
                    Ok(answer) => {
                        drop(place);
                        break answer.expect("nobody is refused");
                    }
                    Err(_) => shuttle::thread::yield_now(),
                }
            },
            _ => panic!("there is room"),
        };
    let from = outer.next_dispatch().expect("a dispatch").token;
    alone(at_work);
    let called = table.clone();
    let works = at_work.clone();
    let inner =
        shuttle::thread::spawn(move || match called.start_callback(&key(), from, LockMode::Exclusive) {
            Ok((inner, _)) => {
                inner.next_dispatch().expect("a dispatch");
                alone(&works);
                inner.mark_upstream_settled();
            }
            // The callback came after the end of its caller, so it is refused.
            Err(error) => {
                assert!(
                    matches!(error, NestedCallbackError::NotInFlight | NestedCallbackError::NotHeld),
                    "{error}"
                )
            }
        });
    shuttle::thread::yield_now();
    outer.mark_upstream_settled();
    drop(outer);
    inner.join().expect("what was called");
}
