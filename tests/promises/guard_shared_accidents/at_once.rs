//! Many ask two guards at once, for sets of keys that overlap in every order.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fencegate_guard::{
    admission::{Claim, DispatchEnd},
    error::AdmitError,
    postgres::{AdmitReply, PostgresStore},
};
use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::clock::{MachineClock, ManualClock, SharedClock};
use fencegate_tests::shared_store::SharedStore;
use futures_util::future::join_all;
use tokio::task::spawn_blocking;

use super::steps::{admit, barrier, claim, opened, runs};

/// Who is at work on each key, and the newest that was.
#[derive(Default)]
struct ActiveKeys(Mutex<HashMap<String, KeyActivity>>);

#[derive(Default)]
struct KeyActivity {
    writes: bool,
    reads: usize,
    written: u64,
    read: u64,
}

impl ActiveKeys {
    fn begins(&self, claim: &Claim) {
        let epoch = claim.token.number();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in claim.keys.iter() {
            let on = all.entry(key.as_str().to_owned()).or_default();
            assert!(!on.writes, "beside a write on {}", key.as_str());
            assert!(on.written < epoch, "{epoch} behind {} on {}", on.written, key.as_str());
            match claim.mode {
                Mode::Shared => (on.reads, on.read) = (on.reads + 1, on.read.max(epoch)),
                Mode::Exclusive => {
                    assert!(on.reads == 0 && on.read < epoch, "behind a read on {}", key.as_str());
                    (on.writes, on.written) = (true, epoch);
                }
            }
        }
    }

    fn ends(&self, claim: &Claim) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in claim.keys.iter() {
            let on = all.entry(key.as_str().to_owned()).or_default();
            match claim.mode {
                Mode::Shared => on.reads -= 1,
                Mode::Exclusive => on.writes = false,
            }
        }
    }
}

/// One claim, waited for until it is let in or stale. Whether it was let in.
async fn once(guard: &PostgresStore, claim: &Claim, at_work: &ActiveKeys) -> bool {
    let name = guard.new_name();
    let mut look = guard.admit(claim, name, None).await.expect("the database answers");
    loop {
        match look {
            AdmitReply::Running { dispatch, .. } => {
                at_work.begins(claim);
                tokio::time::sleep(Duration::from_millis(2)).await;
                at_work.ends(claim);
                guard.end(&dispatch, DispatchEnd::Known);
                return true;
            }
            AdmitReply::Wait { told, .. } => {
                told.await;
                look = guard.settle(claim, name, None).await.expect("the database answers");
            }
            AdmitReply::Rejected(_) => return false,
            AdmitReply::NotHeld => panic!("it is no operation"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overlaps_or_comes_late_and_nobody_waits_for_each_other_for_ever() {
    const KEYS: u64 = 6;
    let store = SharedStore::new().await;
    let clock: SharedClock = Arc::new(MachineClock);
    let guards = [store.guard(clock.clone(), "one").await, store.guard(clock.clone(), "other").await];
    // The store is new, so no earlier guard has to be waited for.
    store.run("UPDATE store SET closed_why = NULL, closed_until = NULL");
    for guard in guards.clone() {
        tokio::spawn(async move { guard.run_background().await });
    }
    let (at_work, epochs) = (Arc::new(ActiveKeys::default()), Arc::new(AtomicU64::new(20)));
    let until = Instant::now() + Duration::from_secs(3);
    let asking = (0..16_u64).map(|nth| {
        let (guard, at_work, epochs) = (guards[nth as usize % 2].clone(), at_work.clone(), epochs.clone());
        tokio::spawn(async move {
            let mut in_ = 0;
            while Instant::now() < until {
                let epoch = epochs.fetch_add(1, Ordering::SeqCst);
                // Some of the keys, chosen by the bits of a scrambled number.
                let some = epoch.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58 | 1 << (epoch % KEYS);
                let keys = (0..KEYS).filter(|key| some >> key & 1 == 1);
                let keys: Vec<_> =
                    keys.map(|key| ResourceKey::parse(&format!("k{key}")).expect("a key")).collect();
                let token = Token::new(epoch, 0, 1).expect("small");
                let mode = if epoch % 3 == 0 { Mode::Exclusive } else { Mode::Shared };
                let claim = Claim { keys: keys.into(), token, mode, era: None, parent: None };
                in_ += u64::from(once(&guard, &claim, &at_work).await);
            }
            in_
        })
    });
    let let_in: u64 = join_all(asking).await.into_iter().map(|asked| asked.expect("no panic")).sum();
    assert!(let_in > 20, "{let_in} in three seconds");
    for guard in &guards {
        guard.leave().await.expect("in order");
    }
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
}

/// Also where it changes nothing of the key, as a reader that is older than another.
#[tokio::test]
async fn whoever_looks_at_a_key_waits_for_who_is_changing_it() {
    const WRITES: &str = r#"SELECT act(1, (SELECT generation FROM lane WHERE instance = 1), 0, 1000, '{a}',
        '[{"kind": "claim", "id": "w", "keys": ["a"], "token": "v1-000000000000001e-00000000-00000001",
        "epoch": 30, "shared": false, "longest": 1, "again": false}]');"#;
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = opened(&store, &clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    let reader = |epoch| Claim { mode: Mode::Shared, ..claim("a", epoch, 1) };
    let newer = runs(&other, &reader(28)).await;
    other.end(&newer, DispatchEnd::Known);
    barrier(&other).await;
    barrier(&one).await;
    let mut writing = store.database.session("a");
    writing.run("SET search_path = fencegate;");
    writing.run("BEGIN;");
    writing.run(WRITES);
    let asked = tokio::spawn(async move { admit(&other, &reader(27)).await });
    let database = store.database.clone();
    spawn_blocking(move || database.wait_one_blocked()).await.expect("it waits");
    writing.run("COMMIT;");
    let look = asked.await.expect("no panic");
    assert!(matches!(look, AdmitReply::Rejected(AdmitError::Stale { .. })), "{look:?}");
}

/// Each batch wants two operations that somebody has, in another order. The second to come has locked one of them when
/// the first gets the other.
#[tokio::test]
async fn two_batches_about_the_same_operations_do_not_wait_for_each_other() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guards = [opened(&store, &clock, "one").await, store.guard(clock.clone(), "other").await];
    for guard in &guards {
        barrier(guard).await;
    }
    store.run("INSERT INTO held (operation, instance, holder) VALUES ('\\x01', 1, 'a'), ('\\x02', 1, 'b')");
    let session = || {
        let mut session = store.database.session("none");
        session.run("SET search_path = fencegate;");
        session
    };
    let batch = |instance: u8, operations: [&str; 2]| {
        let item = |operation| {
            format!(r#"{{"kind": "reserve", "operation": "\\{operation}", "holder": "{instance}"}}"#)
        };
        format!(
            "SELECT act({instance}, (SELECT generation FROM lane WHERE instance = {instance}), 0, 1000, '{{}}', '[{}]');",
            operations.map(item).join(", ")
        )
    };
    let mut holds = session();
    holds.run("BEGIN;");
    holds.run("SELECT FROM held WHERE operation = '\\x01' FOR UPDATE;");
    let first = session().begin_raise(&batch(1, ["x01", "x02"]), "none");
    store.database.wait_blocked(1);
    let second = session().begin_raise(&batch(2, ["x02", "x01"]), "none");
    store.database.wait_blocked(2);
    holds.run("COMMIT;");
    assert_eq!([first.finish(), second.finish()], [Ok(1), Ok(1)]);
}
