//! The guards of a moved store decide every request as the guard would that goes on with the file: the store is filled
//! by random requests and moved, and both sides get the same requests from then on.

use std::{fs, path::Path, sync::Arc, time::Duration};

use fencegate_guard::GuardConfig;
use fencegate_guard_postgres::{
    migration::{StoreMigration, StoreMigrationMode},
    postgres::{PostgresConfig, SCHEMA},
};
use fencegate_guard_store::{
    admission::{AdmissionTable, AdmitDecision, DispatchEnd, DispatchId, PresentedDispatch},
    store::{
        CleanShutdownState, FORMAT, GuardStore, InDoubtExecutionRecord, RedbStore, StoreIdentity,
        StoreMutation,
    },
};
use fencegate_process::{
    clock::{BootInstant, Clock, ManualClock},
    randomness::SystemRandomness,
};
use fencegate_testkit::scratch;
use fencegate_tests::shared_store::{FLOOR, SharedStore, TERMS};

use super::database;
use crate::guard_shared_decisions::{AdmissionComparisonFixture, SmallRng, claim};

/// A single guard: its register, and its file, to which each change is written.
struct FileGuard {
    register: AdmissionTable,
    file: RedbStore,
    clock: Arc<ManualClock>,
    random: SmallRng,
    running: Vec<(PresentedDispatch, DispatchId)>,
}

/// The way in which the guard with the file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardEnd {
    InOrder,
    Killed,
}

impl FileGuard {
    fn new(path: &Path, clock: Arc<ManualClock>, seed: u64) -> Self {
        let identity = StoreIdentity { format: FORMAT, store: "s-1".into(), ensemble: "e-1".into() };
        let file = RedbStore::init(path, &identity, FLOOR).expect("a new store");
        let remembered = file.recover(TERMS.max_execution).expect("readable");
        let register = AdmissionTable::new(&remembered, clock.now(), TERMS.max_execution);
        let mut alone = Self { register, file, clock, random: SmallRng::seeded(seed), running: Vec::new() };
        // A new store admits nothing during its quarantine, so its time is passed here.
        alone.advance_time(TERMS.max_execution + Duration::from_secs(1));
        alone
    }

    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    fn advance_time(&mut self, time: Duration) {
        self.clock.advance(time);
        let changes = self.register.delist_idle_keys(Duration::ZERO, usize::MAX, self.now());
        self.write(&changes);
    }

    fn write(&self, changes: &[StoreMutation]) {
        self.file.commit(changes).expect("written");
    }

    fn step(&mut self) {
        let now = self.now();
        match self.random.next(20) {
            0..12 => {
                let claim = claim(&mut self.random, self.register.highest_epoch());
                let Ok(changes) = self.register.check_and_raise_watermarks(&claim, now) else { return };
                self.write(&changes);
                if let Ok((AdmitDecision::Running(id), changes)) =
                    self.register.check_and_register(&claim, now)
                {
                    self.write(&changes);
                    self.running.push((claim, id));
                }
            }
            12..18 if !self.running.is_empty() => {
                let which = self.random.next(self.running.len() as u64) as usize;
                let (claim, id) = self.running.swap_remove(which);
                let until = now + Duration::from_millis(1 + self.random.next(6000));
                let ended =
                    if self.random.one_in(2) { DispatchEnd::Known } else { DispatchEnd::InDoubt { until } };
                self.register.end_dispatch(&claim, id, ended, now);
            }
            19 => {
                let time = Duration::from_millis(1 + self.random.next(1500));
                self.advance_time(time);
            }
            18 if self.random.one_in(4) => {
                let mut round = self.register.begin_eviction_pass(now, usize::MAX);
                let changes = self.register.evict_step(&mut round, 9, now).changes;
                self.write(&changes);
            }
            _ => {}
        }
    }

    /// Ends the guard. At an end in order it writes what a guard writes that has no request to wait for.
    fn end(mut self, end: GuardEnd) {
        if end == GuardEnd::Killed {
            return;
        }
        let now = self.now();
        let changes = self.register.delist_idle_keys(Duration::ZERO, usize::MAX, now);
        self.write(&changes);
        let whole = self.register.exact_watermarks(0, usize::MAX).into_iter().map(StoreMutation::Watermarks);
        self.write(&whole.collect::<Vec<_>>());
        let doubts = self.register.open_doubts(now).into_iter().map(|doubt| {
            let remaining = doubt.until.since(now);
            InDoubtExecutionRecord {
                keys: doubt.keys,
                token: doubt.token,
                mode: doubt.mode,
                remaining,
                place: None,
            }
        });
        let running = self.register.in_flight_claims().into_iter().map(|claim| InDoubtExecutionRecord {
            keys: claim.keys.to_vec(),
            token: claim.token,
            mode: claim.mode,
            remaining: TERMS.max_execution,
            place: None,
        });
        let doubts = doubts.chain(running).collect();
        let quarantine = self.register.quarantine(now).map(|closed| closed.until.since(now));
        self.write(&[StoreMutation::CleanShutdown(CleanShutdownState {
            marks: Vec::new(),
            doubts,
            quarantine,
        })]);
    }
}

async fn assert_decides_alike(seed: u64, end: GuardEnd) {
    println!("SEED={seed} {end:?}");
    let home = scratch::temp_dir();
    let path = home.path().join("guard.redb");
    let copy = home.path().join("copy.redb");
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1));
    let mut alone = FileGuard::new(&path, clock.clone(), seed);
    for _ in 0..120 {
        alone.step();
    }
    alone.end(end);
    fs::copy(&path, &copy).expect("a copy");

    let database = database().await;
    let place = PostgresConfig::parse(&database.url(), None, SCHEMA).expect("a URL");
    let rules = GuardConfig {
        max_execution: TERMS.max_execution,
        send_within: TERMS.send_within,
        evict_after: TERMS.evict_after,
        ..GuardConfig::default()
    };
    let whole = StoreMigration { from: path.clone(), target: place.clone(), config: rules };
    let looked = whole.run(StoreMigrationMode::DryRun, &SystemRandomness).await.expect("it could be moved");
    let moved = whole.run(StoreMigrationMode::Migrate, &SystemRandomness).await.expect("moved");
    assert_eq!((looked.counts, looked.identity), (moved.counts, moved.identity));
    RedbStore::open(&path).err().expect("nobody opens the file any more");

    let file = RedbStore::open(&copy).expect("the copy knows nothing of it");
    let remembered = file.recover(TERMS.max_execution).expect("readable");
    let register = AdmissionTable::new(&remembered, clock.now(), TERMS.max_execution);
    assert_eq!(moved.counts.keys, remembered.marks.len() as u64);
    assert_eq!(moved.counts.highest, register.highest_epoch());
    let mut two = AdmissionComparisonFixture::with_store(
        register,
        &SharedStore { database, place },
        clock,
        seed + 1000,
    )
    .await;
    if end == GuardEnd::InOrder {
        two.compare().await;
    }
    for _ in 0..150 {
        two.step().await;
    }
    two.advance_time(2 * TERMS.max_execution).await;
    two.compare().await;
}

/// `--dry-run` leaves no lock in the database: the move itself is a second command, right after the first.
#[tokio::test]
async fn dry_run_leaves_no_lock() {
    let home = scratch::temp_dir();
    let from = home.path().join("guard.redb");
    let identity = StoreIdentity { format: FORMAT, store: "s-1".into(), ensemble: "e-1".into() };
    drop(RedbStore::init(&from, &identity, FLOOR).expect("a new store"));
    let database = database().await;
    let into = PostgresConfig::parse(&database.url(), None, SCHEMA).expect("a URL");
    let whole = StoreMigration { from, target: into, config: GuardConfig::default() };
    whole.run(StoreMigrationMode::DryRun, &SystemRandomness).await.expect("it could be moved");
    // The query runs on this thread, so that no task here reports to the server meanwhile that the session is over.
    let held = database.run(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
         WHERE locktype = 'advisory' AND datname = current_database()",
    );
    assert_eq!(held.trim(), "0");
}

/// After a clean stop, the guards of the database decide as the old guard would have.
#[tokio::test]
async fn clean_stop_keeps_decisions() {
    for seed in seeds() {
        assert_decides_alike(seed, GuardEnd::InOrder).await;
    }
}

/// After a kill, the guards of the database decide as the old guard would have.
#[tokio::test]
async fn kill_keeps_decisions() {
    for seed in seeds() {
        assert_decides_alike(seed, GuardEnd::Killed).await;
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => vec![1, 2, 3, 4],
    }
}
