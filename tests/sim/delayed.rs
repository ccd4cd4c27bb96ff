//! Locks of services where nobody compares tokens. The tests play the schedules of the model `delay`: which record the
//! next holder finds, and how long it waits.

mod fixture;
mod leaving;
mod left_behind;
mod storm;

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_lock::manager::{grant_guard::GrantGuard, lock_manager::AcquireError};
use fencegate_policies::plan::Hold;
use fencegate_tests::memory::InFlightFate;
use tokio::time::{Instant, sleep};

use self::fixture::{
    DELAY, FOR_EVER, HOLDS, SOON, T, ensemble, gateway, is_first_word, once, parents, send, take, timed_take,
};
use crate::{
    faulty_client::{LockSide, RequestFate, SessionRequest, unanswered},
    simulated_time,
};

#[test]
fn a_hand_over_in_order_costs_no_delay_and_leaves_nothing() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
        for hold in HOLDS {
            for locks in [&one, &other, &one, &one] {
                let (waited, tenure) = timed_take(locks, hold).await;
                assert!(waited < SOON, "{hold:?}: {waited:?}");
                send(tenure, true);
            }
            // A request waits behind a tenure that still holds the key.
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

/// The model's `NO_DELAY` goes without the delay. Its `CLEAN_AFTER_UNKNOWN` writes a clean record in spite of the
/// unknown outcome.
#[test]
fn after_an_outcome_that_nobody_knows_whoever_is_next_sits_the_delay_out() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
        for hold in HOLDS {
            for next in [&one, &other] {
                send(take(&one, hold).await, false);
                let (waited, tenure) = timed_take(next, hold).await;
                assert!(waited >= DELAY && waited < DELAY + SOON, "{hold:?}: {waited:?}");
                // This holder has waited for the delay, and leaves in order.
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

/// A tenure reports only the first cause of its end. The unknown outcome comes later and must count nevertheless.
#[test]
fn a_tenure_that_was_ended_before_its_outcome_was_lost_is_not_clean() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
        let held = take(&one, HOLDS[1]).await;
        one.keeper.close_all();
        send_open(held);
        let (waited, tenure) = timed_take(&other, Hold::Strict).await;
        assert!(waited >= DELAY, "{waited:?}");
        send(tenure, true);
        one.stop().await;
        other.stop().await;
    });
}

/// Like [`send`] with an unknown outcome, for a tenure that may be closed already.
fn send_open(tenure: GrantGuard) {
    drop(tenure.dispatch());
    drop(tenure);
}

/// The model's `RETRIED_GRANT`: a record that is read after the first write may be the reader's own.
#[test]
fn who_does_not_hear_that_its_first_word_was_written_does_not_take_it_for_a_clean_one() {
    for fate in [RequestFate::Done(unanswered()), RequestFate::Refused(unanswered())] {
        simulated_time::run(async {
            let ensemble = ensemble();
            let (one, (doctor, other)) = (gateway(&ensemble).await.1, gateway(&ensemble).await);
            for hold in HOLDS {
                send(take(&one, hold).await, false);
                let asked = once(&doctor, is_first_word, fate.clone());
                let (waited, tenure) = timed_take(&other, hold).await;
                assert!(asked.get(), "not exercised");
                assert!(waited >= DELAY && waited < DELAY + SOON, "{hold:?}, {fate:?}: {waited:?}");
                send(tenure, true);
                // If there was no holder before, the next holder waits for nobody.
                let asked = once(&doctor, is_first_word, fate.clone());
                let (waited, tenure) = timed_take(&other, Hold::Strict).await;
                assert!(asked.get() && waited < SOON, "{hold:?}, {fate:?}: {waited:?}");
                send(tenure, true);
            }
            one.stop().await;
            other.stop().await;
        });
    }
}

/// The model's `READ_EARLY`: while a request waits in line, the holder has yet to write its record.
#[test]
fn the_record_is_read_when_the_key_is_granted_and_not_when_one_queues() {
    for hold in HOLDS {
        simulated_time::run(async {
            let ensemble = ensemble();
            let ((doctor, one), other) = (gateway(&ensemble).await, gateway(&ensemble).await.1);
            // The first holder writes its record late, because the write is lost again and again.
            let slow = Rc::new(Cell::new(true));
            let still = slow.clone();
            doctor.set_rule(move |asked| match asked {
                SessionRequest::Commit { steps } if is_first_word(steps) && still.get() => {
                    RequestFate::Refused(unanswered())
                }
                _ => RequestFate::Passes,
            });
            let first = async {
                let held = take(&one, hold).await;
                held.dispatch().expect("it holds");
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

/// The model's `GIVE_UP_CLEAN`; and the other way round, nobody would ever run.
#[test]
fn who_waits_less_than_the_delay_is_refused_and_the_delay_is_sat_out_all_the_same() {
    for hold in HOLDS {
        for wait in [Duration::ZERO, T] {
            simulated_time::run(async {
                let ensemble = ensemble();
                let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
                send(take(&one, hold).await, false);
                let left = Instant::now();
                let mut refused = 0;
                let tenure = loop {
                    match other.acquire_delayed(&["a"], hold, wait, Some(DELAY)).await {
                        Ok(tenure) => break tenure,
                        Err(AcquireError::Delayed(rest)) => {
                            assert!(rest <= DELAY && left.elapsed() + rest >= DELAY, "{rest:?}");
                        }
                        // Strict requests wait in line behind the request that waits for the delay.
                        Err(AcquireError::Locked) if hold == Hold::Strict && refused > 0 => {}
                        Err(why) => panic!("{hold:?}: {why}"),
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

/// The gateway has sent nothing itself. Its record must keep the delay for the earlier holder's dispatches.
#[test]
fn who_stops_while_it_sits_a_delay_out_hands_its_length_on() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
        let longest = DELAY * 3;
        for hold in HOLDS {
            let (_, sits) = gateway(&ensemble).await;
            let held = one.acquire_delayed(&["a"], hold, FOR_EVER, Some(longest)).await.expect("free");
            held.dispatch().expect("it holds");
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

#[test]
fn after_a_holder_that_died_the_delay_begins_when_its_session_is_over() {
    for hold in HOLDS {
        simulated_time::run(async {
            let ensemble = ensemble();
            let ((doctor, one), other) = (gateway(&ensemble).await, gateway(&ensemble).await.1);
            let held = take(&one, hold).await;
            held.dispatch().expect("it holds");
            doctor.wire().disconnect(InFlightFate::Lost);
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

#[test]
fn a_process_that_stops_in_order_leaves_its_idle_keys_clean_and_not_those_at_work() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
        send(take(&one, HOLDS[1]).await, true);
        one.stop().await;
        let (waited, tenure) = timed_take(&other, HOLDS[1]).await;
        assert!(waited < SOON, "{waited:?}");
        send(tenure, true);
        sleep(T).await;
        for hold in HOLDS {
            let (doctor, stops) = gateway(&ensemble).await;
            let held = take(&stops, hold).await;
            held.dispatch().expect("it holds");
            stops.stop().await;
            // The process dies with its dispatch at work.
            doctor.wire().disconnect(InFlightFate::Lost);
            let (waited, tenure) = timed_take(&other, hold).await;
            assert!(waited >= DELAY, "{hold:?}: {waited:?}");
            send(tenure, true);
            drop(held);
        }
        other.stop().await;
    });
}

#[test]
fn a_set_waits_for_the_longest_of_its_keys_and_leaves_all_of_them_alike() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (one, other) = (gateway(&ensemble).await.1, gateway(&ensemble).await.1);
        let set = |locks| took_set(locks, &["a", "b"]);
        send(set(&one).await.1, true);
        assert!(set(&other).await.0 < SOON, "it was never sent under");
        sleep(T).await;
        assert_eq!(parents(&ensemble), [""; 0]);

        send(take(&one, Hold::Strict).await, false);
        let (waited, tenure) = set(&other).await;
        assert!(waited >= DELAY && waited < DELAY + SOON, "{waited:?}");
        send(tenure, false);
        let left = Instant::now();
        for name in ["a", "b"] {
            let (_, tenure) = took_set(&one, &[name]).await;
            // The record of the other key may have been removed meanwhile.
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

async fn took_set(locks: &LockSide, names: &[&str]) -> (Duration, GrantGuard) {
    let began = Instant::now();
    let tenure = locks.acquire_delayed(names, Hold::Strict, FOR_EVER, Some(DELAY)).await.expect("granted");
    (began.elapsed(), tenure)
}
