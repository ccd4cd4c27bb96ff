//! Concurrent requests to two guards, for sets of keys that overlap in every order, never run at once on a key, never
//! come late, and never deadlock.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fencegate_guard_postgres::postgres::{PostgresAdmissionOutcome, PostgresStore};
use fencegate_guard_store::{
    admission::{DispatchEnd, PresentedDispatch},
    error::DispatchRefusedError,
};
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::{MachineClock, ManualClock, SharedClock};
use fencegate_tests::shared_store::SharedStore;
use futures_util::future::join_all;
use tokio::task::spawn_blocking;

use super::steps::{admit, admit_running, claim, open_guard, wait_processed};

/// For each key, the dispatches at work and the newest epochs that wrote or read.
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
    fn record_begin(&self, claim: &PresentedDispatch) {
        let epoch = claim.token.number();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in claim.keys.iter() {
            let on = all.entry(key.as_str().to_owned()).or_default();
            assert!(!on.writes, "beside a write on {}", key.as_str());
            assert!(on.written < epoch, "{epoch} behind {} on {}", on.written, key.as_str());
            match claim.mode {
                LockMode::Shared => (on.reads, on.read) = (on.reads + 1, on.read.max(epoch)),
                LockMode::Exclusive => {
                    assert!(on.reads == 0 && on.read < epoch, "behind a read on {}", key.as_str());
                    (on.writes, on.written) = (true, epoch);
                }
            }
        }
    }

    fn record_end(&self, claim: &PresentedDispatch) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in claim.keys.iter() {
            let on = all.entry(key.as_str().to_owned()).or_default();
            match claim.mode {
                LockMode::Shared => on.reads -= 1,
                LockMode::Exclusive => on.writes = false,
            }
        }
    }
}

/// Waits until the claim is admitted or stale. Returns whether it was admitted.
async fn run_claim_once(guard: &PostgresStore, claim: &PresentedDispatch, at_work: &ActiveKeys) -> bool {
    let name = guard.new_dispatch_name();
    let mut reply = guard.admit(claim, name, None).await.expect("the database answers");
    loop {
        match reply {
            PostgresAdmissionOutcome::Running { dispatch, .. } => {
                at_work.record_begin(claim);
                tokio::time::sleep(Duration::from_millis(2)).await;
                at_work.record_end(claim);
                guard.end_dispatch(&dispatch, DispatchEnd::Known);
                return true;
            }
            PostgresAdmissionOutcome::Wait { told, .. } => {
                told.await;
                reply = guard.check_and_register(claim, name, None).await.expect("the database answers");
            }
            PostgresAdmissionOutcome::Rejected(_) => return false,
            PostgresAdmissionOutcome::NotHeld => panic!("it is no operation"),
        }
    }
}

/// Concurrent requests to two guards for overlapping key sets never overlap, come late or deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_guards_never_overlap_or_deadlock() {
    const KEYS: u64 = 6;
    let store = SharedStore::new().await;
    let clock: SharedClock = Arc::new(MachineClock);
    let guards = [store.guard(clock.clone(), "one").await, store.guard(clock.clone(), "other").await];
    // The store is new, so no earlier guard has to be waited for.
    store.run("UPDATE store SET closed_why = NULL, closed_until = NULL");
    for guard in guards.clone() {
        tokio::spawn(async move { guard.run_background().await });
    }
    let at_work = Arc::new(ActiveKeys::default());
    let epochs = Arc::new(AtomicU64::new(20));
    let until = Instant::now() + Duration::from_secs(3);
    let tasks = (0..16_u64).map(|nth| {
        let guard = guards[nth as usize % 2].clone();
        let at_work = at_work.clone();
        let epochs = epochs.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            while Instant::now() < until {
                let epoch = epochs.fetch_add(1, Ordering::SeqCst);
                // Some of the keys, chosen by the bits of a scrambled number.
                let some = epoch.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58 | 1 << (epoch % KEYS);
                let keys = (0..KEYS).filter(|key| some >> key & 1 == 1);
                let keys: Vec<_> =
                    keys.map(|key| ResourceKey::parse(&format!("k{key}")).expect("a key")).collect();
                let token = FencingToken::new(epoch, 0, 1).expect("small");
                let mode = if epoch.is_multiple_of(3) { LockMode::Exclusive } else { LockMode::Shared };
                let claim = PresentedDispatch { keys: keys.into(), token, mode, era: None, parent: None };
                admitted += u64::from(run_claim_once(&guard, &claim, &at_work).await);
            }
            admitted
        })
    });
    let total: u64 = join_all(tasks).await.into_iter().map(|count| count.expect("no panic")).sum();
    assert!(total > 20, "{total} in three seconds");
    for guard in &guards {
        guard.shut_down_cleanly().await.expect("in order");
    }
    assert_eq!(store.run("SELECT count(*) FROM at_work"), "0");
}

/// A request that looks at a key waits for a transaction that is changing the key, also where the request itself changes
/// nothing of it, as a reader that is older than another.
#[tokio::test]
async fn reader_waits_for_concurrent_writer() {
    const WRITES: &str = r#"SELECT act(1, (SELECT generation FROM lane WHERE instance = 1), 0, 1000, '{a}',
        '[{"kind": "claim", "id": "w", "keys": ["a"], "token": "v1-000000000000001e-00000000-00000001",
        "epoch": 30, "shared": false, "longest": 1, "again": false}]');"#;
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let one = open_guard(&store, &clock, "one").await;
    let other = store.guard(clock.clone(), "other").await;
    let reader = |epoch| PresentedDispatch { mode: LockMode::Shared, ..claim("a", epoch, 1) };
    let newer = admit_running(&other, &reader(28)).await;
    other.end_dispatch(&newer, DispatchEnd::Known);
    wait_processed(&other).await;
    wait_processed(&one).await;
    let mut writing = store.database.session("a");
    writing.run("SET search_path = fencegate;");
    writing.run("BEGIN;");
    writing.run(WRITES);
    let pending = tokio::spawn(async move { admit(&other, &reader(27)).await });
    let database = store.database.clone();
    spawn_blocking(move || database.wait_one_blocked()).await.expect("it waits");
    writing.run("COMMIT;");
    let reply = pending.await.expect("no panic");
    assert!(
        matches!(reply, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Stale { .. })),
        "{reply:?}"
    );
}

/// Two batches about the same operations do not wait for each other. Each batch wants two operations that are held, in
/// another order. The second to come has locked one of them when the first gets the other.
#[tokio::test]
async fn operation_batches_do_not_deadlock() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guards = [open_guard(&store, &clock, "one").await, store.guard(clock.clone(), "other").await];
    for guard in &guards {
        wait_processed(guard).await;
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
