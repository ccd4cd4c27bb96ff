//! A large store is moved from its file into a database in bounded time, and in memory that does not grow with it.
//!
//! The store has 100,000 keys and their operations.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fencegate_guard_store::{
    operation::{JournalEntryState, OperationJournalEntry, StoredResponse},
    store::{
        CleanShutdownState, DurableKeyWatermarks, FORMAT, GuardStore, KeyWatermarks, RedbStore,
        StoreIdentity, StoreMutation,
    },
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, token::FencingToken};
use fencegate_testkit::{postgres, scratch};
use fencegate_tests::{guard::GuardFixture, migration::StoreMigration, shared_database::SharedDatabase};
use serde_json::json;
use tokio::task::spawn_blocking;

const KEYS: u64 = 100_000;
const OPERATIONS: u64 = 20_000;
/// Bytes of a recorded response.
const BODY: usize = 4096;

/// Bytes: less than the whole store takes in memory, and more than the process and one batch take.
const MEMORY: usize = 64 << 20;

/// Enough for a busy machine and for an unoptimised build.
const TIME: Duration = Duration::from_secs(60);

fn key(number: u64) -> ResourceKey {
    ResourceKey::parse(&format!("account/{number}")).expect("a key")
}

fn mark(number: u64) -> [StoreMutation; 2] {
    let epoch = 100 + number;
    let token = FencingToken::new(epoch, 1, 1).expect("small");
    let write = Some(token);
    let read = number.is_multiple_of(2).then_some(token);
    let epochs = DurableKeyWatermarks { write: Some(epoch), read: read.map(FencingToken::number) };
    let whole = KeyWatermarks { key: key(number), write, read };
    [StoreMutation::Mark { key: key(number), epochs }, StoreMutation::Watermarks(whole)]
}

fn operation(number: u64) -> StoreMutation {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    let answer = StoredResponse { status: 200, fields: Vec::new(), body: Some(Bytes::from(vec![7; BODY])) };
    let entry = OperationJournalEntry {
        format: FORMAT,
        fingerprint: "ab".repeat(32),
        keys: vec![key(number)],
        token: FencingToken::new(100 + number, 1, 1).expect("small"),
        method: "POST".into(),
        target: "/pay".into(),
        name: Some(format!("op-{number}")),
        askable: true,
        admitted: 100,
        began: Some(100),
        keep: 86_400,
        state: JournalEntryState::Done { at: 100, answer: Some(answer) },
    };
    StoreMutation::Operation { id: OperationId::from_bytes(id), entry: Box::new(entry) }
}

fn create_filled_store(path: &std::path::Path) {
    let identity = StoreIdentity { format: FORMAT, store: "large".into(), ensemble: "e".into() };
    let file = RedbStore::init(path, &identity, 10).expect("a new store");
    for from in (0..KEYS).step_by(5000) {
        let changes: Vec<_> = (from..from + 5000).flat_map(mark).collect();
        file.commit(&changes).expect("written");
    }
    for from in (0..OPERATIONS).step_by(1000) {
        let changes: Vec<_> = (from..from + 1000).map(operation).collect();
        file.commit(&changes).expect("written");
    }
    file.commit(&[StoreMutation::AtWorkListed, StoreMutation::CleanShutdown(CleanShutdownState::default())])
        .expect("written");
}

/// A store of a hundred thousand keys is moved into a database in bounded time and memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_store_migrates_in_bounded_memory() {
    let beside = GuardFixture::new().await;
    let database = spawn_blocking(postgres::fresh_database).await.expect("no panic");
    let sharing = SharedDatabase::new(&database.url());
    let home = scratch::temp_dir();
    let path = home.path().join("guard.redb");
    let file = path.clone();
    spawn_blocking(move || create_filled_store(&file)).await.expect("filled");
    let migration = StoreMigration::new(&path, &sharing.guard(beside.uninitialized_launch()));
    let began = Instant::now();
    let peak = migration.run_measuring_peak_memory().await;
    let took = began.elapsed();
    let told = migration.expect_outcome("was-there").await;
    println!("{KEYS} keys and {OPERATIONS} operations in {took:?}, with {peak} bytes of memory");
    assert_eq!((&told["keys"], &told["operations"]), (&json!(KEYS), &json!(OPERATIONS)), "{told}");
    let rows = "SELECT (SELECT count(*) FROM fencegate.key), (SELECT count(*) FROM fencegate.operation)";
    assert_eq!(database.run(rows), format!("{KEYS}|{OPERATIONS}"));
    assert!(peak < MEMORY, "{peak} bytes");
    assert!(took < TIME, "{took:?}");
}
