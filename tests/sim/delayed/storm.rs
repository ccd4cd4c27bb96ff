//! Random accidents for locks with a delay. An execution may go on by itself for less than the delay, and no two
//! executions may overlap.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_lock::manager::lock_manager::AcquireError;
use fencegate_tests::memory::{
    EnsembleSettings, SeededRng, SimEnsemble, UndeliveredRequestFate, Wire, WireDirection,
};
use tokio::{
    join,
    task::spawn_local,
    time::{Instant, sleep},
};

use super::fixture::{HOLDS, T, parents};
use crate::{
    faulty_client::{FaultInjector, FaultyClient, GatewayLockStack},
    run, simulated_time,
};

const DELAY: Duration = Duration::from_secs(4);
const RAGES: Duration = Duration::from_secs(200);
const GATEWAYS: usize = 3;
const CALLERS: usize = 6;

/// The number of events of each kind in all schedules.
#[derive(Debug, Default)]
struct StormOutcomeCounts {
    running: Cell<u32>,
    overlaps: Cell<u32>,
    executions: Cell<u32>,
    unknown: Cell<u32>,
    delayed: Cell<u32>,
}

fn count(of: &Cell<u32>) {
    of.set(of.get() + 1);
}

/// Executions that end within the delay never overlap, whatever accidents happen.
#[test]
fn executions_within_delay_never_overlap() {
    let first = run::seed("delayed");
    let cases = run::cases(20);
    let seen = Rc::<StormOutcomeCounts>::default();
    for seed in (0..u64::from(cases)).map(|number| first.wrapping_add(number)) {
        simulated_time::run(play(seed, seen.clone()));
        assert_eq!(seen.overlaps.get(), 0, "FENCEGATE_SEED={seed} FENCEGATE_CASES=1: {seen:?}");
    }
    eprintln!("{cases} schedules: {seen:?}");
    let exercised = [&seen.executions, &seen.unknown, &seen.delayed];
    assert!(exercised.iter().all(|count| count.get() > cases), "not exercised: {seen:?}");
}

async fn play(seed: u64, seen: Rc<StormOutcomeCounts>) {
    let dice = Rc::new(SeededRng::new(seed));
    let settings = EnsembleSettings {
        latency: Duration::ZERO..Duration::from_millis(2),
        containers: Duration::from_secs(1),
        seed: dice.next(),
        ..EnsembleSettings::default()
    };
    let ensemble = SimEnsemble::start(settings);
    let mut gateways = Vec::new();
    for _ in 0..GATEWAYS {
        let doctor = FaultInjector::new();
        let library = FaultyClient { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        gateways.push((doctor, Rc::new(GatewayLockStack::new(library).await)));
    }
    let end = Instant::now() + RAGES;
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let locks = gateways[number % GATEWAYS].1.clone();
            spawn_local(call(locks, dice.clone(), seen.clone(), end))
        })
        .collect();
    run_accidents(&ensemble, &gateways, &dice, end).await;
    for caller in callers {
        caller.await.expect("no panic");
    }
    // Wait until the delays that are left are over: then nothing may be left in ZooKeeper.
    sleep(DELAY * 3 + T * 10).await;
    assert_eq!(parents(&ensemble), [""; 0], "FENCEGATE_SEED={seed}");
    for (_, locks) in gateways {
        Rc::into_inner(locks).expect("every caller has ended").stop().await;
    }
}

async fn call(locks: Rc<GatewayLockStack>, dice: Rc<SeededRng>, seen: Rc<StormOutcomeCounts>, end: Instant) {
    while Instant::now() < end {
        let hold = *dice.one_of(&HOLDS);
        let wait = *dice.one_of(&[Duration::ZERO, T, DELAY * 3]);
        let tenure = match locks.acquire_delayed(&["a"], hold, wait, Some(DELAY)).await {
            Ok(tenure) => tenure,
            Err(error) => {
                if let AcquireError::Delayed(_) = error {
                    count(&seen.delayed);
                }
                sleep(dice.within(&(Duration::ZERO..T))).await;
                continue;
            }
        };
        let mut known = true;
        while let Some(dispatch) = tenure.next_dispatch() {
            // The dispatch is sent here, unless the lock validity has ended.
            if !dispatch.validity.may_send_at(locks.clock.now()) {
                break;
            }
            let ends = spawn_local(execute(seen.clone(), dice.within(&(Duration::ZERO..DELAY * 9 / 10))));
            known = dice.below(3) > 0;
            if known {
                ends.await.expect("no panic");
            } else {
                count(&seen.unknown);
            }
            if !known || dice.below(2) == 0 {
                break;
            }
        }
        if known {
            tenure.mark_upstream_settled();
        }
    }
}

async fn execute(seen: Rc<StormOutcomeCounts>, length: Duration) {
    count(&seen.executions);
    if seen.running.replace(seen.running.get() + 1) > 0 {
        count(&seen.overlaps);
    }
    sleep(length).await;
    seen.running.set(seen.running.get() - 1);
}

async fn run_accidents(
    ensemble: &SimEnsemble,
    gateways: &[(FaultInjector, Rc<GatewayLockStack>)],
    dice: &SeededRng,
    end: Instant,
) {
    while Instant::now() < end {
        sleep(dice.within(&(Duration::from_millis(5)..T))).await;
        let wire = gateways[dice.index(gateways.len())].0.wire();
        let lasts = dice.within(&(Duration::ZERO..T * 3));
        // An accident may last longer than the session timeout: a holder is then cut off while others see its
        // session end.
        join!(cause_accident(ensemble, &wire, dice, lasts), sleep(lasts / 2));
    }
    ensemble.recover();
    for (doctor, _) in gateways {
        doctor.wire().resume();
        doctor.wire().reconnect();
    }
}

async fn cause_accident(ensemble: &SimEnsemble, wire: &Rc<Wire>, dice: &SeededRng, lasts: Duration) {
    let underway =
        if dice.below(2) == 0 { UndeliveredRequestFate::Arrives } else { UndeliveredRequestFate::Lost };
    match dice.below(8) {
        0 | 1 => wire.lose_next_reply(),
        2 => wire.lose_next_request(),
        3 => wire.break_and_reconnect(underway),
        4 | 5 => {
            wire.disconnect(underway);
            sleep(lasts).await;
            wire.reconnect();
        }
        6 => {
            wire.stall(*dice.one_of(&[
                WireDirection::ToServer,
                WireDirection::ToClient,
                WireDirection::Both,
            ]));
            sleep(lasts).await;
            wire.resume();
        }
        _ => {
            ensemble.lose_majority();
            sleep(lasts).await;
            ensemble.recover();
        }
    }
}
