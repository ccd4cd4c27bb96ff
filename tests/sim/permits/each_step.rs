//! Plays an accident at each operation of a request: a lost answer, a caller that goes away, the end of the session,
//! or another client that removes a node. The request has a permit or none, no node of it is left, and the other
//! requests lose nothing.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use fencegate_lock::manager::grant_guard::GrantGuard;
use tokio::{
    task::{AbortHandle, spawn_local},
    time::{sleep, timeout},
};

use super::fixture::{PermitFixture, PermitGateway, T, expect_granted, semaphore, spawn_acquire};
use crate::{
    faulty_client::{ZkRequestFate, is_heartbeat, unanswered},
    simulated_time,
};

/// The accident, which happens just before an operation or to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepFault {
    LostAnswer,
    LostRequest,
    CallerGone,
    SessionEnds,
    PlaceStolen,
    PermitStolen,
}

/// The minimum number of operations of a request, from its first one to its release.
const LEAST: u32 = 6;

/// The number of holders when our request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriorHolderCount {
    Nobody,
    /// One of the two permits is free.
    One,
    /// No permit is free: our request waits, and another one waits behind it.
    All,
}

/// Makes the accident happen at this operation of the gateway, counted from now.
fn schedule_fault(
    stage: &Rc<PermitFixture>,
    accident: StepFault,
    at: u32,
    caller: &Rc<RefCell<Option<AbortHandle>>>,
) -> Rc<Cell<bool>> {
    let struck = Rc::<Cell<bool>>::default();
    let stage = stage.clone();
    let caller = caller.clone();
    let told = struck.clone();
    let mut count = 0;
    let doctor = stage.gateways[0].doctor.clone();
    doctor.set_rule(move |request| {
        if is_heartbeat(request) || told.get() {
            return ZkRequestFate::Passes;
        }
        count += 1;
        if count <= at {
            return ZkRequestFate::Passes;
        }
        told.set(true);
        let gateway = &stage.gateways[0];
        let session = gateway.locks.keeper.session_id_for(&super::fixture::key());
        let ours = |path: &&String| stage.ensemble.stat(path).map(|seen| seen.owner) == session;
        let steal = |permit: bool| {
            let found = stage.nodes().into_iter().filter(|path| path.contains("/permit-") == permit);
            found.filter(|path| ours(&path)).for_each(|path| stage.ensemble.delete_as_other_client(&path));
        };
        match accident {
            StepFault::LostAnswer => return ZkRequestFate::Done(unanswered()),
            StepFault::LostRequest => return ZkRequestFate::Refused(unanswered()),
            StepFault::CallerGone => caller.borrow().iter().for_each(AbortHandle::abort),
            StepFault::SessionEnds => gateway.doctor.wire().expire(),
            StepFault::PlaceStolen => steal(false),
            StepFault::PermitStolen => steal(true),
        }
        ZkRequestFate::Passes
    });
    struck
}

/// Releases a permit after a while.
fn release_after(held: GrantGuard, after: Duration) {
    drop(spawn_local(async move {
        sleep(after).await;
        held.mark_upstream_settled();
    }));
}

async fn acquire_permits(gateway: &PermitGateway, count: usize) -> Vec<GrantGuard> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(expect_granted(spawn_acquire(gateway, semaphore(2))).await);
    }
    held
}

/// Plays one accident. Returns false if the gateway had fewer operations than `at`, so that no accident happened.
fn play(before: PriorHolderCount, accident: StepFault, at: u32) -> bool {
    simulated_time::run(async move {
        let what = format!("{accident:?} at operation {at}, after {before:?}");
        let stage = Rc::new(PermitFixture::new(2).await);
        let ours = &stage.gateways[0];
        let theirs = &stage.gateways[1];
        let count = match before {
            PriorHolderCount::Nobody => 0,
            PriorHolderCount::One => 1,
            PriorHolderCount::All => 2,
        };
        for held in acquire_permits(theirs, count).await {
            release_after(held, T / 4);
        }
        let caller = Rc::<RefCell<Option<AbortHandle>>>::default();
        let struck = schedule_fault(&stage, accident, at, &caller);
        let asked = spawn_acquire(ours, semaphore(2));
        caller.replace(Some(asked.abort_handle()));
        sleep(T / 50).await;
        let behind = spawn_acquire(theirs, semaphore(2));
        let came_to = timeout(T * 20, asked).await.unwrap_or_else(|_| panic!("{what}: it does not end"));
        if let Ok(got) = came_to {
            let may_fail = matches!(accident, StepFault::SessionEnds);
            assert!(got.is_ok() || may_fail, "{what}: {:?}", got.map(drop));
            if let Ok(tenure) = got {
                sleep(T / 4).await;
                tenure.mark_upstream_settled();
            }
        }
        let behind = timeout(T * 20, behind).await.unwrap_or_else(|_| panic!("{what}: it waits for ever"));
        let behind = behind.expect("no panic").unwrap_or_else(|error| panic!("{what}: {error}"));
        let beside = timeout(T * 20, spawn_acquire(theirs, semaphore(2))).await;
        let beside = beside.unwrap_or_else(|_| panic!("{what}: a permit is not given back"));
        let beside = beside.expect("no panic").unwrap_or_else(|error| panic!("{what}: {error}"));
        // Not asserted after a stolen permit: another request may get this permit and lose it again, when its former
        // holder removes the node before it has noticed the loss.
        if accident != StepFault::PermitStolen {
            assert_ne!(behind.permit(), beside.permit(), "{what}");
            sleep(T).await;
            let now = theirs.locks.clock.now();
            let held = [&behind, &beside].map(|held| held.validity().is_valid_at(now));
            assert_eq!(held, [true; 2], "{what}: a node of theirs was removed");
        }
        drop((behind, beside));
        // Wait for requests of the gateway that are still in flight.
        sleep(T * 3).await;
        assert_eq!(stage.nodes(), [""; 0], "{what}");
        assert!(stage.gateways.iter().all(|gateway| gateway.locks.keeper.key_count() == 0), "{what}");
        stage.gateways[0].doctor.set_rule(|_| ZkRequestFate::Passes);
        struck.get()
    })
}

/// After an accident at any operation no node of the request is left, and the other requests keep their permits.
#[test]
fn accident_leaves_foreign_nodes_only() {
    use StepFault::*;
    for before in [PriorHolderCount::Nobody, PriorHolderCount::One, PriorHolderCount::All] {
        for accident in [LostAnswer, LostRequest, CallerGone, SessionEnds, PlaceStolen, PermitStolen] {
            let steps = (0..200).find(|at| !play(before, accident, *at)).expect("it ends");
            eprintln!("{accident:?} after {before:?}: {steps} operations");
            assert!(steps >= LEAST, "{accident:?} after {before:?}: {steps} operations");
        }
    }
}
