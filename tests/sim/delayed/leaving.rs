//! The final record of a holder, in the transaction that removes its node: written once, and read by the next holder.

use std::{cell::Cell, rc::Rc};

use fencegate_policies::plan::LockReusePolicy;
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkConnector};
use tokio::time::{Instant, sleep};

use super::fixture::{
    DELAY, HOLDS, SOON, T, ensemble, gateway, inject_once, is_last_word, parent, send, take, timed_take,
};
use crate::{
    faulty_client::{SessionRequest, ZkRequestFate, throttled, unanswered},
    simulated_time,
};

/// If one request waits at the holder's gateway and another one at another gateway, the holder's gateway removes its
/// node, queues again, and records that its requests are over, all in one transaction.
#[test]
fn requeueing_holder_leaves_in_one_transaction() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (doctor, one) = gateway(&ensemble).await;
        let other = gateway(&ensemble).await.1;
        let held = take(&one, HOLDS[1]).await;
        held.next_dispatch().expect("it holds");
        let node = held.node_paths()[0].clone();
        // The number of transactions that remove the node, and of all requests about its key after the first of
        // them.
        let asked = Rc::new(Cell::new((0, 0)));
        let counted = asked.clone();
        doctor.set_rule(move |what| {
            let of_it = |step: &MultiOp<'_>| matches!(step, MultiOp::Delete { path, .. } if *path == node);
            let removes = matches!(what, SessionRequest::Commit { steps } if steps.iter().any(of_it));
            let makes = matches!(what, SessionRequest::Create { .. });
            assert!(!makes, "the node is made by the transaction that removes the other one");
            let (removals, since) = counted.get();
            let about = removals > 0 && !removes && what.path().starts_with(&parent());
            counted.set((removals + u32::from(removes), since + u32::from(about)));
            ZkRequestFate::Passes
        });
        let elsewhere = async {
            let (waited, tenure) = timed_take(&other, HOLDS[1]).await;
            sleep(SOON / 4).await;
            // One removal, and three requests after it: a read of the new node, a list, and a watch on the node
            // before it.
            assert_eq!(asked.get(), (1, 3));
            send(tenure, true);
            waited
        };
        let here = async {
            sleep(T / 4).await;
            timed_take(&one, HOLDS[1]).await
        };
        let leaves = async {
            sleep(T / 2).await;
            send(held, true);
        };
        let (next, (waited, tenure), ()) = tokio::join!(elsewhere, here, leaves);
        assert!(next < T / 2 + SOON && waited < T / 2 + SOON * 2, "{next:?}, {waited:?}");
        send(tenure, true);
        sleep(SOON).await;
        assert_eq!(asked.get().0, 1, "it was removed once");
        doctor.set_rule(|_| ZkRequestFate::Passes);
        one.stop().await;
        other.stop().await;
    });
}

/// If another client has queued since the holder last looked, the parent stays, with the record that the holder
/// released the key in order.
#[test]
fn supposed_last_holder_leaves_clean() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let held = take(&one, LockReusePolicy::Strict).await;
        let other = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        let node = format!("{}/_c_0-w-", parent());
        other.create(&node, b"", NodeCreateMode::EphemeralSequential).await.expect("made");
        let began = Instant::now();
        send(held, true);
        while other.children(&parent()).await.expect("it stays").len() > 1 {
            sleep(SOON / 100).await;
        }
        assert!(began.elapsed() < SOON / 4, "it has paused as before a request that the server refuses");
        let (record, _) = other.data(&parent()).await.expect("it stays");
        assert!(!record.is_empty(), "whoever is next would have to wait");
        one.stop().await;
    });
}

/// A final record that the server refuses for a while is written again after pauses, and not in a busy loop.
#[test]
fn refused_final_record_retries_after_pause() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (doctor, one) = gateway(&ensemble).await;
        let held = take(&one, LockReusePolicy::Strict).await;
        let other = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        let node = format!("{}/_c_0-w-", parent());
        other.create(&node, b"", NodeCreateMode::EphemeralSequential).await.expect("made");
        let tried = Rc::new(Cell::new(0));
        let counted = tried.clone();
        doctor.set_rule(move |request| match request {
            SessionRequest::Commit { steps } if is_last_word(steps) => {
                counted.set(counted.get() + 1);
                assert!(counted.get() < 100, "without a pause");
                ZkRequestFate::RefusedAt(1, throttled())
            }
            _ => ZkRequestFate::Passes,
        });
        send(held, true);
        sleep(T).await;
        assert!((2..10).contains(&tried.get()), "{} tries in {T:?}", tried.get());
        doctor.set_rule(|_| ZkRequestFate::Passes);
        sleep(T).await;
        assert_eq!(other.children(&parent()).await.expect("it stays").len(), 1, "ours is gone");
        one.stop().await;
    });
}

/// A final record whose answer was lost is written once, and repeating the write does not change the next holder's
/// record.
#[test]
fn unanswered_final_record_spares_next_holder() {
    for fate in [ZkRequestFate::Done(unanswered()), ZkRequestFate::Refused(unanswered())] {
        simulated_time::run(async {
            let ensemble = ensemble();
            let (doctor, one) = gateway(&ensemble).await;
            let other = gateway(&ensemble).await.1;
            for hold in HOLDS {
                let held = take(&one, hold).await;
                let asked = inject_once(&doctor, is_last_word, fate.clone());
                let (next, ()) = tokio::join!(timed_take(&other, hold), async {
                    sleep(T / 4).await;
                    send(held, true);
                });
                assert!(asked.get(), "not exercised");
                assert!(next.0 < SOON, "{hold:?}, {fate:?}: {:?}", next.0);
                // The repeated write is refused, because the node is gone, and so leaves the next holder's record
                // unchanged.
                sleep(SOON).await;
                send(next.1, false);
                let (waited, tenure) = timed_take(&one, hold).await;
                assert!(waited >= DELAY, "{hold:?}, {fate:?}: {waited:?}");
                send(tenure, true);
                sleep(T).await;
            }
            one.stop().await;
            other.stop().await;
        });
    }
}
