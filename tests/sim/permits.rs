//! A key with permits: never more holders than permits, granted in the order of arrival. The tokens of each permit
//! grow.

mod each_step;
mod fixture;

use std::{collections::BTreeMap, time::Duration};

use fencegate_lock::manager::{
    admin_query::BreakLockOutcome, grant_guard::GrantGuard, lock_manager::AcquireError,
};
use fencegate_policies::plan::LockLocation;
use fencegate_tests::memory::WireDirection;
use fixture::{PermitFixture, T, expect_granted, semaphore, spawn_acquire, spawn_acquire_queued};
use tokio::time::{sleep, timeout};

use crate::{
    faulty_client::{SessionRequest, ZkRequestFate},
    simulated_time,
};

/// The newest epoch of each permit, as a guard would store it.
#[derive(Default)]
struct PermitEpochs(BTreeMap<u16, u64>);

impl PermitEpochs {
    fn announce(&mut self, tenure: &GrantGuard) -> u16 {
        let permit = tenure.permit().expect("one of several").number();
        let epoch = tenure.next_dispatch().expect("open").token.number();
        let before = self.0.insert(permit, epoch).unwrap_or_default();
        assert!(epoch > before, "permit {permit}: {epoch} after {before}");
        permit
    }
}

/// Never more requests than permits hold the key, and they are granted in the order of arrival.
#[test]
fn permits_are_granted_in_order() {
    simulated_time::run(async {
        let stage = PermitFixture::new(2).await;
        let mut marks = PermitEpochs::default();
        let mut asking = Vec::new();
        for number in 0..12 {
            asking.push(spawn_acquire(&stage.gateways[number % 2], semaphore(3)));
            // A pause, so that the requests arrive in this order.
            sleep(T / 50).await;
        }
        let mut asking = asking.into_iter();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(expect_granted(asking.next().expect("twelve")).await);
        }
        let mut permits: Vec<u16> = held.iter().map(|tenure| marks.announce(tenure)).collect();
        permits.sort_unstable();
        assert_eq!(permits, [0, 1, 2]);
        let mut waiting: Vec<_> = asking.collect();
        // The index of the holder that leaves next.
        for leaves in [1, 0, 2, 2, 0, 1, 1, 0, 0] {
            sleep(T / 2).await;
            assert!(waiting.iter().all(|asked| !asked.is_finished()), "more than three hold");
            held.remove(leaves).mark_upstream_settled();
            let next = waiting.remove(0);
            let next = timeout(T / 4, next).await.expect("it is its turn").expect("no panic");
            held.push(next.expect("granted"));
            marks.announce(&held[2]);
        }
        held.into_iter().for_each(|tenure| tenure.mark_upstream_settled());
        sleep(T / 2).await;
        stage.assert_nothing_left();
        stage.end().await;
    });
}

/// The queue limit of a gateway counts the requests that wait, and not the holders.
#[test]
fn queue_limit_excludes_permit_holders() {
    simulated_time::run(async {
        let stage = PermitFixture::new(1).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(expect_granted(spawn_acquire_queued(&stage.gateways[0], semaphore(2), 1)).await);
        }
        let waits = spawn_acquire_queued(&stage.gateways[0], semaphore(2), 1);
        sleep(T / 20).await;
        let told =
            spawn_acquire_queued(&stage.gateways[0], semaphore(2), 1).await.expect("no panic").map(drop);
        assert_eq!(told, Err(AcquireError::QueueFull));
        held.remove(0).mark_upstream_settled();
        drop((expect_granted(waits).await, held));
        stage.end().await;
    });
}

/// The number of requests to ZooKeeper that all waiting requests send when one holder releases its permit.
async fn requests_when_one_leaves(waiters: usize) -> u32 {
    let stage = PermitFixture::new(2).await;
    let mut held = Vec::new();
    for number in 0..2 {
        held.push(expect_granted(spawn_acquire(&stage.gateways[number], semaphore(2))).await);
    }
    let mut waiting = Vec::new();
    for number in 0..waiters {
        waiting.push(spawn_acquire(&stage.gateways[number % 2], semaphore(2)));
        sleep(T / 50).await;
    }
    let asked = stage.count();
    held.remove(0).mark_upstream_settled();
    let next = expect_granted(waiting.remove(0)).await;
    sleep(T / 2).await;
    let counted = asked.get();
    drop((next, held, waiting));
    counted
}

/// A release wakes only the next request in the queue, and after its grant the one behind it. No other request is
/// woken.
#[test]
fn release_wakes_two_waiters_only() {
    let few = simulated_time::run(requests_when_one_leaves(3));
    let many = simulated_time::run(requests_when_one_leaves(60));
    assert_eq!(few, many);
    assert!(many <= 16, "{many}");
}

/// A request reads the list of nodes after it has set its watch: the request before it may have got its permit just
/// before, so that the watch alone would miss the next release.
#[test]
fn newly_first_waiter_sees_release() {
    simulated_time::run(async {
        let stage = PermitFixture::new(2).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(expect_granted(spawn_acquire(&stage.gateways[0], semaphore(2))).await);
        }
        let before = spawn_acquire(&stage.gateways[0], semaphore(2));
        sleep(T / 20).await;
        let last = |path: &String| path.rsplit('-').next().map(str::to_owned);
        let places = stage.nodes().into_iter().filter(|path| path.contains("-s2-"));
        let place = places.max_by_key(last).expect("three are there");
        let doctor = stage.gateways[1].doctor.clone();
        doctor.clone().set_rule(move |request| {
            if matches!(request, SessionRequest::Other { path } if path == place) {
                doctor.wire().stall(WireDirection::ToServer);
            }
            ZkRequestFate::Passes
        });
        let behind = spawn_acquire(&stage.gateways[1], semaphore(2));
        sleep(T / 20).await;
        held.remove(0).mark_upstream_settled();
        let before = expect_granted(before).await;
        stage.gateways[1].doctor.set_rule(|_| ZkRequestFate::Passes);
        stage.gateways[1].doctor.wire().resume();
        sleep(T / 20).await;
        assert!(!behind.is_finished(), "two hold");
        held.remove(0).mark_upstream_settled();
        let behind = timeout(T / 4, expect_granted(behind)).await.expect("it is its turn");
        drop((before, behind));
        stage.end().await;
    });
}

/// A slow grant gets the newest token. While the first request in the queue is slow, another one gets and releases a
/// permit twice; the first one's token is newer than both.
#[test]
fn slow_grant_gets_newest_token() {
    simulated_time::run(async {
        let stage = PermitFixture::new(2).await;
        let mut marks = PermitEpochs::default();
        let doctor = stage.gateways[0].doctor.clone();
        doctor.clone().set_rule(move |request| {
            if fixture::takes_a_permit(request) {
                doctor.wire().stall(WireDirection::ToServer);
            }
            ZkRequestFate::Passes
        });
        let slow = spawn_acquire(&stage.gateways[0], semaphore(2));
        sleep(T / 20).await;
        for _ in 0..2 {
            let fast = expect_granted(spawn_acquire(&stage.gateways[1], semaphore(2))).await;
            marks.announce(&fast);
            drop(fast);
            sleep(T / 20).await;
        }
        assert!(!slow.is_finished());
        stage.gateways[0].doctor.set_rule(|_| ZkRequestFate::Passes);
        stage.gateways[0].doctor.wire().resume();
        let slow = expect_granted(slow).await;
        let permit = marks.announce(&slow);
        assert_eq!(marks.0.get(&permit), marks.0.values().max());
        drop(slow);
        stage.end().await;
    });
}

/// A request with another number of permits is refused at once, and delays no request behind it.
#[test]
fn other_permit_count_is_refused() {
    simulated_time::run(async {
        let stage = PermitFixture::new(3).await;
        let held = expect_granted(spawn_acquire(&stage.gateways[0], semaphore(2))).await;
        for site in [semaphore(3), LockLocation::Native] {
            let unlike = spawn_acquire(&stage.gateways[1], site);
            let like = spawn_acquire(&stage.gateways[2], semaphore(2));
            let like =
                timeout(T / 4, like).await.expect("not behind it").expect("no panic").expect("granted");
            let result = timeout(T, unlike).await.expect("at once").expect("no panic").map(drop);
            assert_eq!(result, Err(AcquireError::PermitsDiffer));
            drop(like);
        }
        held.mark_upstream_settled();
        drop(held);
        sleep(T / 4).await;
        let alone = spawn_acquire(&stage.gateways[1], LockLocation::Native);
        let alone = alone.await.expect("no panic").expect("nobody is before it");
        let result = spawn_acquire(&stage.gateways[0], semaphore(2)).await.expect("no panic").map(drop);
        assert_eq!(result, Err(AcquireError::PermitsDiffer));
        drop(alone);
        sleep(T / 4).await;
        stage.assert_nothing_left();
        stage.end().await;
    });
}

/// If the last holder with the former number of permits releases while the first request with the new number
/// arrives, that request is granted.
#[test]
fn changed_permit_count_refuses_no_request() {
    simulated_time::run(async {
        let stage = PermitFixture::new(2).await;
        let held = expect_granted(spawn_acquire(&stage.gateways[0], semaphore(2))).await;
        let changed = spawn_acquire(&stage.gateways[1], semaphore(3));
        sleep(Duration::from_millis(20)).await;
        held.mark_upstream_settled();
        drop(held);
        drop(expect_granted(changed).await);
        stage.end().await;
    });
}

/// The listed queue shows holders with their permits, and an operator who breaks a holder's lock frees its permit.
#[test]
fn broken_holder_frees_its_permit() {
    simulated_time::run(async {
        let stage = PermitFixture::new(2).await;
        let mut held = Vec::new();
        for number in 0..2 {
            held.push(expect_granted(spawn_acquire(&stage.gateways[number], semaphore(2))).await);
        }
        let waits = spawn_acquire(&stage.gateways[0], semaphore(2));
        sleep(T / 10).await;
        let lock_manager = &stage.gateways[1].locks.keeper;
        let line = lock_manager.queue_entries(&fixture::key(), semaphore(2)).await.expect("told");
        let shown: Vec<_> =
            line.iter().map(|one| (one.holds, one.permit.map(|permit| permit.number()))).collect();
        assert_eq!(shown, [(true, Some(0)), (true, Some(1)), (false, None)]);
        let number = held[0].predispatch_token().map(|token| token.number());
        assert_eq!((line[0].number, line[2].number), (number, None));
        let broken = lock_manager.break_lock(&fixture::key(), semaphore(2), line[0].node.clone()).await;
        assert_eq!(broken, Ok(BreakLockOutcome::Gone));
        let next = expect_granted(waits).await;
        assert_eq!(next.permit().map(|permit| permit.number()), Some(0));
        sleep(T / 2).await;
        let now = stage.gateways[0].locks.clock.now();
        assert!(!held[0].validity().is_valid_at(now) && held[1].validity().is_valid_at(now), "one was told");
        drop((next, held));
        sleep(T / 4).await;
        stage.assert_nothing_left();
        stage.end().await;
    });
}

/// The loss of either node of a holder ends its lock validity. Without the place in the queue, other gateways count
/// one holder less. Without the permit node, another request takes the permit.
#[test]
fn lost_place_or_permit_ends_validity() {
    for permit in [true, false] {
        simulated_time::run(async move {
            let stage = PermitFixture::new(2).await;
            let held = expect_granted(spawn_acquire(&stage.gateways[0], semaphore(2))).await;
            sleep(T / 4).await;
            let now = || stage.gateways[0].locks.clock.now();
            assert!(held.validity().is_valid_at(now()));
            let stolen = stage.nodes().into_iter().find(|path| path.contains("/permit-") == permit);
            stage.ensemble.delete_as_other_client(&stolen.expect("held"));
            sleep(T / 4).await;
            assert!(!held.validity().is_valid_at(now()), "permit: {permit}");
            held.mark_upstream_settled();
            drop(held);
            sleep(T / 4).await;
            stage.assert_nothing_left();
            stage.end().await;
        });
    }
}

/// The end of a session frees its permits, and the waiting requests of all gateways are granted.
#[test]
fn session_end_frees_permits() {
    simulated_time::run(async {
        let stage = PermitFixture::new(2).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(expect_granted(spawn_acquire(&stage.gateways[0], semaphore(2))).await);
        }
        let behind = spawn_acquire(&stage.gateways[0], semaphore(2));
        let last = spawn_acquire(&stage.gateways[1], semaphore(2));
        sleep(T / 10).await;
        stage.gateways[0].doctor.wire().expire();
        let last = timeout(T * 3, last).await.expect("its turn").expect("no panic").expect("granted");
        let behind =
            timeout(T * 5, behind).await.expect("in line again").expect("no panic").expect("granted");
        assert_ne!(last.permit(), behind.permit());
        let now = stage.gateways[0].locks.clock.now();
        assert!(held.iter().all(|lost| !lost.validity().is_valid_at(now)));
        drop((held, last, behind));
        sleep(T).await;
        stage.assert_nothing_left();
        stage.end().await;
    });
}
