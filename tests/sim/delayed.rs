//! Locks of services that compare no tokens: the record that the next holder finds, and the time that it waits. The
//! tests play the schedules of the model `delay`.

mod fixture;
mod leaving;
mod left_behind;
mod storm;

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_lock::manager::{grant_guard::GrantGuard, lock_manager::AcquireError};
use fencegate_policies::plan::LockReusePolicy;
use fencegate_tests::memory::UndeliveredRequestFate;
use tokio::time::{Instant, sleep};

use self::fixture::{
    DELAY, FOR_EVER, HOLDS, SOON, T, ensemble, gateway, inject_once, is_first_word, parents, send, take,
    timed_take,
};
use crate::{
    faulty_client::{GatewayLockStack, SessionRequest, ZkRequestFate, unanswered},
    simulated_time,
};

/// An orderly handover costs no delay, and leaves no parent node when the key is unused.
#[test]
fn orderly_handover_costs_no_delay() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        for hold in HOLDS {
            for locks in [&one, &other, &one, &one] {
                let (waited, tenure) = timed_take(locks, hold).await;
                assert!(waited < SOON, "{hold:?}: {waited:?}");
                send(tenure, true);
            }
            // A request that waits while the key is still held is also granted without a delay.
            let held = take(&one, hold).await;
            let (waited, ()) = tokio::join!(timed_take(&other, hold), async {
                sleep(T).await;
                send(held, true);
            });
            assert!(waited.0 < T + SOON, "{hold:?}: {:?}", waited.0);
            send(waited.1, true);
            sleep(T * 3).await;
            assert_eq!(parents(&ensemble), [""; 0], "{hold:?}");
        }
        one.stop().await;
        other.stop().await;
    });
}

/// The next holder waits for the delay after an unknown outcome. In the model, `NO_DELAY` leaves out the delay, and
/// `CLEAN_AFTER_UNKNOWN` writes a clean record in spite of the unknown outcome.
#[test]
fn unknown_outcome_delays_next_holder() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        for hold in HOLDS {
            for next in [&one, &other] {
                send(take(&one, hold).await, false);
                let (waited, tenure) = timed_take(next, hold).await;
                assert!(waited >= DELAY && waited < DELAY + SOON, "{hold:?}: {waited:?}");
                // This holder has waited for the delay and releases the key in order, so the next one waits for
                // none.
                send(tenure, true);
                let (waited, tenure) = timed_take(&one, hold).await;
                assert!(waited < SOON, "{hold:?}: {waited:?}");
                send(tenure, true);
            }
        }
        one.stop().await;
        other.stop().await;
    });
}

/// An outcome that becomes unknown after the tenure has ended for another cause still imposes the delay.
#[test]
fn lost_outcome_after_end_imposes_delay() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        let held = take(&one, HOLDS[1]).await;
        one.keeper.close_all_tenures();
        send_open(held);
        let (waited, tenure) = timed_take(&other, LockReusePolicy::Strict).await;
        assert!(waited >= DELAY, "{waited:?}");
        send(tenure, true);
        one.stop().await;
        other.stop().await;
    });
}

/// Like [`send`] with an unknown outcome, for a tenure that may be closed already.
fn send_open(tenure: GrantGuard) {
    drop(tenure.next_dispatch());
    drop(tenure);
}

/// A holder whose first write was not answered waits for the delay: the record that it reads may be its own
/// (`RETRIED_GRANT` in the model).
#[test]
fn unanswered_first_write_is_not_clean() {
    for fate in [ZkRequestFate::Done(unanswered()), ZkRequestFate::Refused(unanswered())] {
        simulated_time::run(async {
            let ensemble = ensemble();
            let one = gateway(&ensemble).await.1;
            let (doctor, other) = gateway(&ensemble).await;
            for hold in HOLDS {
                send(take(&one, hold).await, false);
                let asked = inject_once(&doctor, is_first_word, fate.clone());
                let (waited, tenure) = timed_take(&other, hold).await;
                assert!(asked.get(), "not exercised");
                assert!(waited >= DELAY && waited < DELAY + SOON, "{hold:?}, {fate:?}: {waited:?}");
                send(tenure, true);
                // If there was no holder before, the lost answer costs no delay.
                let asked = inject_once(&doctor, is_first_word, fate.clone());
                let (waited, tenure) = timed_take(&other, LockReusePolicy::Strict).await;
                assert!(asked.get() && waited < SOON, "{hold:?}, {fate:?}: {waited:?}");
                send(tenure, true);
            }
            one.stop().await;
            other.stop().await;
        });
    }
}

/// A request reads the holder's record when it is granted, and not while it waits: the holder may write its record
/// meanwhile (`READ_EARLY` in the model).
#[test]
fn record_is_read_at_grant() {
    for hold in HOLDS {
        simulated_time::run(async {
            let ensemble = ensemble();
            let (doctor, one) = gateway(&ensemble).await;
            let other = gateway(&ensemble).await.1;
            // The first holder writes its record late, because each attempt to write fails for a while.
            let slow = Rc::new(Cell::new(true));
            let still = slow.clone();
            doctor.set_rule(move |request| match request {
                SessionRequest::Commit { steps } if is_first_word(steps) && still.get() => {
                    ZkRequestFate::Refused(unanswered())
                }
                _ => ZkRequestFate::Passes,
            });
            let first = async {
                let held = take(&one, hold).await;
                held.next_dispatch().expect("it holds");
                sleep(T).await;
                (Instant::now(), drop(held))
            };
            let second = async {
                sleep(T).await;
                let granted = async {
                    let tenure = take(&other, hold).await;
                    (Instant::now(), tenure)
                };
                let ((), granted) = tokio::join!(
                    async {
                        sleep(T).await;
                        slow.set(false);
                    },
                    granted
                );
                granted
            };
            let ((left, ()), (granted, tenure)) = tokio::join!(first, second);
            assert!(granted - left >= DELAY, "{hold:?}: {:?}", granted - left);
            send(tenure, true);
            one.stop().await;
            other.stop().await;
        });
    }
}

/// A request that waits less than the delay is refused, but the delay elapses meanwhile, so that a later request is
/// granted (`GIVE_UP_CLEAN` in the model).
#[test]
fn delay_elapses_despite_short_waits() {
    for hold in HOLDS {
        for wait in [Duration::ZERO, T] {
            simulated_time::run(async {
                let ensemble = ensemble();
                let one = gateway(&ensemble).await.1;
                let other = gateway(&ensemble).await.1;
                send(take(&one, hold).await, false);
                let left = Instant::now();
                let mut refused = 0;
                let tenure = loop {
                    match other.acquire_delayed(&["a"], hold, wait, Some(DELAY)).await {
                        Ok(tenure) => break tenure,
                        Err(AcquireError::Delayed(rest)) => {
                            assert!(rest <= DELAY && left.elapsed() + rest >= DELAY, "{rest:?}");
                        }
                        // A strict request may also be refused because it waits behind an earlier request, which
                        // waits for the delay.
                        Err(AcquireError::Locked) if hold == LockReusePolicy::Strict && refused > 0 => {}
                        Err(error) => panic!("{hold:?}: {error}"),
                    }
                    refused += 1;
                    sleep(Duration::from_millis(500)).await;
                };
                let waited = left.elapsed();
                assert!(waited >= DELAY && waited < DELAY + T, "{hold:?}: {waited:?}");
                assert!(refused > 0, "not exercised");
                send(tenure, true);
                one.stop().await;
                other.stop().await;
            });
        }
    }
}

/// A gateway that stops while it waits for the delay, and has sent nothing itself, leaves a record that keeps the
/// delay of the earlier holder.
#[test]
fn stop_during_delay_preserves_its_length() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        let longest = DELAY * 3;
        for hold in HOLDS {
            let (_, sits) = gateway(&ensemble).await;
            let held = one.acquire_delayed(&["a"], hold, FOR_EVER, Some(longest)).await.expect("free");
            held.next_dispatch().expect("it holds");
            drop(held);
            let refused = sits.acquire_delayed(&["a"], hold, T, Some(DELAY)).await;
            assert!(matches!(refused, Err(AcquireError::Delayed(_))), "{hold:?}: {refused:?}");
            sits.stop().await;
            let (waited, tenure) = timed_take(&other, hold).await;
            assert!(waited >= longest && waited < longest + T, "{hold:?}: {waited:?}");
            send(tenure, true);
        }
        one.stop().await;
        other.stop().await;
    });
}

/// After a holder that died, the delay begins when its session expires.
#[test]
fn delay_starts_at_dead_session_expiry() {
    for hold in HOLDS {
        simulated_time::run(async {
            let ensemble = ensemble();
            let (doctor, one) = gateway(&ensemble).await;
            let other = gateway(&ensemble).await.1;
            let held = take(&one, hold).await;
            held.next_dispatch().expect("it holds");
            doctor.wire().disconnect(UndeliveredRequestFate::Lost);
            let (waited, tenure) = timed_take(&other, hold).await;
            assert!(waited >= DELAY + T / 2 && waited < DELAY + T * 2, "{hold:?}: {waited:?}");
            send(tenure, true);
            drop(held);
            doctor.wire().reconnect();
            one.stop().await;
            other.stop().await;
        });
    }
}

/// A process that stops in order leaves clean records for its idle keys, but not for keys with a dispatch in flight.
#[test]
fn orderly_stop_cleans_idle_keys_only() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        send(take(&one, HOLDS[1]).await, true);
        one.stop().await;
        let (waited, tenure) = timed_take(&other, HOLDS[1]).await;
        assert!(waited < SOON, "{waited:?}");
        send(tenure, true);
        sleep(T).await;
        for hold in HOLDS {
            let (doctor, stops) = gateway(&ensemble).await;
            let held = take(&stops, hold).await;
            held.next_dispatch().expect("it holds");
            stops.stop().await;
            // The process dies with its dispatch in flight.
            doctor.wire().disconnect(UndeliveredRequestFate::Lost);
            let (waited, tenure) = timed_take(&other, hold).await;
            assert!(waited >= DELAY, "{hold:?}: {waited:?}");
            send(tenure, true);
            drop(held);
        }
        other.stop().await;
    });
}

/// A set waits for the longest delay of its keys, and leaves the same record for each of them.
#[test]
fn set_waits_longest_key_delay() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        let set = |locks| timed_take_set(locks, &["a", "b"]);
        send(set(&one).await.1, true);
        assert!(set(&other).await.0 < SOON, "it was never sent under");
        sleep(T).await;
        assert_eq!(parents(&ensemble), [""; 0]);

        send(take(&one, LockReusePolicy::Strict).await, false);
        let (waited, tenure) = set(&other).await;
        assert!(waited >= DELAY && waited < DELAY + SOON, "{waited:?}");
        send(tenure, false);
        let left = Instant::now();
        for name in ["a", "b"] {
            let (_, tenure) = timed_take_set(&one, &[name]).await;
            // Only a lower bound holds for the second key, because its record may already have been removed.
            assert!(left.elapsed() >= DELAY, "{name}: {:?}", left.elapsed());
            send(tenure, true);
        }
        let (waited, tenure) = set(&other).await;
        assert!(waited < SOON, "{waited:?}");
        send(tenure, true);
        one.stop().await;
        other.stop().await;
    });
}

async fn timed_take_set(locks: &GatewayLockStack, names: &[&str]) -> (Duration, GrantGuard) {
    let began = Instant::now();
    let tenure =
        locks.acquire_delayed(names, LockReusePolicy::Strict, FOR_EVER, Some(DELAY)).await.expect("granted");
    (began.elapsed(), tenure)
}
