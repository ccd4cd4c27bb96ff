//! Tests of whether and when records and parents are removed that stayed, because a holder wrote no final record or
//! no request read that record.

use fencegate_lock::manager::lock_manager::AcquireError;
use fencegate_policies::plan::LockReusePolicy;
use fencegate_recipe::grant_record::GrantRecord;
use fencegate_zookeeper::session::client::{MultiOp, NodeCreateMode, ZkClient, ZkConnector};
use tokio::time::{Instant, sleep};

use super::fixture::{DELAY, HOLDS, T, ensemble, gateway, parent, parents, send, take, timed_take};
use crate::{faulty_client::key, simulated_time};

/// The record of a dead holder is removed after its delay, and no request waits longer because of that.
#[test]
fn dead_record_is_removed_after_delay() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (doctor, one) = gateway(&ensemble).await;
        let other = gateway(&ensemble).await.1;
        for asked_after in [None, Some(DELAY / 2)] {
            let held = take(&one, LockReusePolicy::Strict).await;
            held.next_dispatch().expect("it holds");
            doctor.wire().expire();
            drop(held);
            let left = Instant::now();
            if let Some(pause) = asked_after {
                sleep(pause).await;
                let tenure = take(&other, LockReusePolicy::Strict).await;
                let waited = left.elapsed();
                assert!(waited >= DELAY && waited < DELAY + T * 3, "{waited:?}");
                send(tenure, true);
            }
            sleep(DELAY + T * 5).await;
            assert_eq!(parents(&ensemble), [""; 0], "{asked_after:?}");
        }
        one.stop().await;
        other.stop().await;
    });
}

/// A reader of a key sees the holder's record while the key is held, and none afterwards.
#[test]
fn grant_record_is_shown_while_held() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let locks = gateway(&ensemble).await.1;
        let held = take(&locks, LockReusePolicy::Strict).await;
        let epoch = held.predispatch_token().expect("nothing was sent yet").number();
        let look = async || {
            let shown = locks.keeper.grant_record(&key("a")).await.expect("it can be read");
            shown.map(|record| (record.epoch, record.has_handover_delay()))
        };
        assert_eq!(look().await, Some((epoch, true)));
        send(held, true);
        sleep(T).await;
        assert_eq!(look().await, None);
        locks.stop().await;
    });
}

/// A parent that was left with a record is removed by the janitor when the delay in it is over. If the record cannot
/// be read, the parent stays, and its key is refused.
#[test]
fn readable_leftover_record_is_removed() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let (_, locks) = gateway(&ensemble).await;
        let raw = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        send(take(&locks, LockReusePolicy::Strict).await, true);
        sleep(T).await;
        for (record, stays) in [
            (GrantRecord::clean_record().to_bytes(), false),
            (GrantRecord::held_record(7, DELAY).to_bytes(), false),
            (br#"{"format":2}"#.to_vec(), true),
            (b"what is this".to_vec(), true),
        ] {
            raw.create(&parent(), b"", NodeCreateMode::Persistent).await.expect("not there");
            raw.commit(&[MultiOp::Set { path: &parent(), data: &record }]).await.expect("there");
            sleep(DELAY + T * 5).await;
            assert_eq!(parents(&ensemble) == [parent()], stays, "{}", String::from_utf8_lossy(&record));
            if stays {
                let result = locks.acquire_delayed(&["a"], LockReusePolicy::Strict, T, Some(DELAY)).await;
                assert!(matches!(result, Err(AcquireError::Service(_))), "{result:?}");
                raw.delete(&parent()).await.expect("nobody is below it");
            }
        }
        locks.stop().await;
    });
}

/// A holder without a delay does not remove a parent that has the record of the last holder.
#[test]
fn record_outlives_holders_without_delay() {
    simulated_time::run(async {
        let ensemble = ensemble();
        let one = gateway(&ensemble).await.1;
        let other = gateway(&ensemble).await.1;
        send(take(&one, LockReusePolicy::Strict).await, false);
        let plain = other.acquire(&["a"], LockReusePolicy::Strict).await.expect("it does not look");
        plain.mark_upstream_settled();
        drop(plain);
        let (waited, tenure) = timed_take(&other, LockReusePolicy::Strict).await;
        assert!(waited >= DELAY, "{waited:?}");
        send(tenure, true);
        one.stop().await;
        other.stop().await;
    });
}

/// A container is replaced by a persistent parent before a record is written, because ZooKeeper would remove the
/// container, with the record, after its last child.
#[test]
fn container_is_replaced_before_record_write() {
    for hold in HOLDS {
        simulated_time::run(async {
            let ensemble = ensemble();
            let (doctor, one) = gateway(&ensemble).await;
            let other = gateway(&ensemble).await.1;
            let plain = one.acquire(&["a"], LockReusePolicy::Strict).await.expect("free");
            let (held, ()) = tokio::join!(take(&other, hold), async {
                sleep(T).await;
                plain.mark_upstream_settled();
                drop(plain);
            });
            held.next_dispatch().expect("it holds");
            assert!(ensemble.stat(&parent()).is_some_and(|seen| seen.version > 0), "a record is there");
            drop(held);
            ensemble.remove_empty_containers();
            let (waited, tenure) = timed_take(&one, hold).await;
            assert!(waited >= DELAY, "{hold:?}: {waited:?}");
            send(tenure, true);
            drop(doctor);
            one.stop().await;
            other.stop().await;
        });
    }
}
