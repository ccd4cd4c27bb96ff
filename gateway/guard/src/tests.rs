//! The background work of a guard, on a clock that the test moves.

mod admission;
mod journal;
mod operations;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fencegate_guard_store::{
    admission::PresentedDispatch,
    error,
    metrics::GuardMetrics,
    operation::{self, OperationJournalEntry, StoredResponse},
    store::{
        self, DiskSpace, GuardStore, JournalSize, RecoveredState, RedbStore, StoreBackupError, StoreError,
        StoreIdentity, StoreMutation, backup::BackupHeader,
    },
    wall_clock,
};
use fencegate_policies::{
    file::load_guard,
    key::ResourceKey,
    operation::{FencingOperationHeader, OperationId, RequestFingerprint},
    plan::LockMode,
    token::FencingToken,
};
use fencegate_process::{clock::ManualClock, registry::MetricRegistry};

use super::{
    Guard, GuardConfig,
    execution::AdmittedExecution,
    journal::JournalLookup,
    local_backend::LocalGuardBackend,
    reserve::IdempotentRequest,
    waiter::{AlwaysWaitingClient, ClientWaitLimit},
};

/// A store that counts the commits and the changes in each.
struct CountingStore {
    store: RedbStore,
    commits: AtomicUsize,
    largest: AtomicUsize,
}

impl GuardStore for CountingStore {
    fn recover(&self, max_execution: Duration) -> Result<RecoveredState, StoreError> {
        self.store.recover(max_execution)
    }

    fn commit(&self, changes: &[StoreMutation]) -> Result<(), StoreError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.largest.fetch_max(changes.len(), Ordering::SeqCst);
        self.store.commit(changes)
    }

    fn operation(&self, id: &OperationId) -> Result<Option<OperationJournalEntry>, StoreError> {
        self.store.operation(id)
    }

    fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, StoreError> {
        self.store.unresolved_operations(most)
    }

    fn unresolved_operation_ids(&self, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.store.unresolved_operation_ids(most)
    }

    fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, StoreError> {
        self.store.find_by_reference(reference)
    }

    fn expired(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.store.expired(now, most)
    }

    fn journal(&self) -> JournalSize {
        self.store.journal()
    }

    fn disk(&self) -> Option<DiskSpace> {
        self.store.disk()
    }

    fn write_backup(&self, into: &mut dyn io::Write) -> Result<BackupHeader, StoreBackupError> {
        self.store.write_backup(into)
    }
}

struct TestGuard {
    guard: Arc<Guard>,
    store: Arc<CountingStore>,
    clock: Arc<ManualClock>,
    families: MetricRegistry,
    folder: tempfile::TempDir,
}

const DAY: Duration = Duration::from_secs(86_400);

/// A guard with a new store, out of its first quarantine.
fn new_test_guard(more: &str) -> TestGuard {
    let folder = tempfile::tempdir().expect("a folder");
    let identity = StoreIdentity { format: store::FORMAT, store: "s".into(), ensemble: "e".into() };
    drop(RedbStore::init(&folder.path().join("guard.redb"), &identity, 5).expect("a new store"));
    let clock = Arc::new(ManualClock::default());
    clock.advance(DAY);
    let site = open_fixture(folder, clock, more);
    site.clock.advance(DAY);
    site.local_backend().delist_idle_keys();
    site
}

fn open_fixture(folder: tempfile::TempDir, clock: Arc<ManualClock>, more: &str) -> TestGuard {
    let path = folder.path().join("guard.redb");
    let text = format!(
        "version: 1\nlistener: {{address: 127.0.0.1:8080}}\nupstream: {{endpoint: \"http://127.0.0.1:8000\"}}\n\
         store: {{redb: {}}}\n{more}",
        path.display()
    );
    let plan = load_guard(&text).plan.expect("a sound file");
    let store = RedbStore::open(&path).expect("there");
    let store =
        Arc::new(CountingStore { store, commits: AtomicUsize::default(), largest: AtomicUsize::default() });
    let families = MetricRegistry::new();
    let metrics = GuardMetrics::register(&families);
    let config = GuardConfig::from_plan(&plan);
    let opened = Guard::open(store.clone(), config, clock.clone(), "i".into(), metrics).expect("readable");
    TestGuard { guard: opened.guard, store, clock, families, folder }
}

impl TestGuard {
    fn local_backend(&self) -> &LocalGuardBackend {
        self.guard.backend.local()
    }

    /// Ends the guard without a clean stop, and starts another one.
    fn restarted(self) -> Self {
        let Self { guard, store, clock, folder, .. } = self;
        guard.backend.local().close();
        drop(guard);
        while Arc::strong_count(&store) > 1 {
            std::thread::yield_now();
        }
        drop(store);
        open_fixture(folder, clock, "")
    }

    fn claim(key: &str, epoch: u64) -> PresentedDispatch {
        let key = ResourceKey::parse(key).expect("a key");
        let token = FencingToken::new(epoch, 1, 1).expect("small");
        PresentedDispatch {
            keys: vec![key].into(),
            token,
            mode: LockMode::Exclusive,
            era: None,
            parent: None,
        }
    }

    /// Runs an operation to its end: it is reserved, admitted, and completed with status 200.
    async fn complete_operation(&self, number: u64, keep: u64) -> Result<(), error::DispatchRefusedError> {
        self.complete_operation_with(number, keep, None).await
    }

    async fn complete_operation_with(
        &self,
        number: u64,
        keep: u64,
        body: Option<&Bytes>,
    ) -> Result<(), error::DispatchRefusedError> {
        let mut client = AlwaysWaitingClient;
        let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::from_secs(1));
        let claim = Self::claim("a", 100 + number);
        let wanted = operation_request(number, keep, &claim);
        let JournalLookup::New(reserved) = self.guard.reserve_and_look_up(wanted, &mut wait_limit).await?
        else {
            panic!("{number} is known")
        };
        let running = self.guard.admit(claim, Some(reserved), &mut wait_limit).await?;
        running.complete(stored_response(200, body)).await
    }

    /// The kept response that a repeat of the operation gets.
    async fn replay_operation(&self, number: u64, keep: u64) -> StoredResponse {
        let mut client = AlwaysWaitingClient;
        let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::from_secs(1));
        let wanted = operation_request(number, keep, &Self::claim("a", 100_000));
        match self.guard.reserve_and_look_up(wanted, &mut wait_limit).await {
            Ok(JournalLookup::Done(kept)) => kept,
            _ => panic!("{number} was done, and its answer is kept"),
        }
    }

    fn is_known(&self, number: u64) -> bool {
        self.store.operation(&id(number)).expect("readable").is_some()
    }
}

fn stored_response(status: u16, body: Option<&Bytes>) -> StoredResponse {
    StoredResponse { status, fields: Vec::new(), body: body.cloned() }
}

fn id(number: u64) -> OperationId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    OperationId::from_bytes(bytes)
}

fn operation_request(number: u64, keep: u64, claim: &PresentedDispatch) -> IdempotentRequest {
    IdempotentRequest {
        operation: FencingOperationHeader {
            id: id(number),
            former: None,
            fingerprint: RequestFingerprint::from_bytes([1; 32]),
            keep,
            finals: Vec::new(),
            askable: true,
        },
        keys: claim.keys.clone(),
        token: claim.token,
        method: "POST".into(),
        target: "/".into(),
        name: None,
    }
}

#[tokio::test]
async fn clean_stop_writes_watermarks_in_batches() {
    const KEYS: u64 = 2500;
    let site = new_test_guard("");
    for number in 0..KEYS {
        let claim = TestGuard::claim(&format!("k{number}"), 100 + number);
        site.local_backend()
            .lock()
            .register
            .check_and_raise_watermarks(&claim, site.guard.now())
            .expect("newer");
    }
    site.guard.shut_down_cleanly().await.expect("left");
    assert!(site.store.largest.load(Ordering::SeqCst) <= 1000);
    let marks = site.store.recover(DAY).expect("readable").clean_stop.expect("left in order").marks;
    assert_eq!(marks.len() as u64, KEYS);
    assert_eq!(marks.iter().filter(|mark| mark.write.is_some()).count() as u64, KEYS);
}

/// A tenure costs one commit, and its further dispatches none. The cost of a dispatch is counted in commits;
/// dispatches that wait at the same time share one.
#[tokio::test]
async fn grant_costs_one_commit() {
    let site = new_test_guard("");
    let mut client = AlwaysWaitingClient;
    let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::from_secs(1));
    let commits = |site: &TestGuard| site.store.commits.swap(0, Ordering::SeqCst);
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    commits(&site);
    for dispatch in 1..=100 {
        let claim = PresentedDispatch {
            token: FencingToken::new(50, 1, dispatch).expect("small"),
            ..TestGuard::claim("a", 50)
        };
        let running = site.guard.admit(claim, None, &mut wait_limit).await.expect("the newest");
        running.complete(stored_response(200, None)).await.expect("known");
        site.clock.advance(Duration::from_millis(200));
        site.local_backend().delist_idle_keys();
    }
    assert_eq!(commits(&site), 1, "the epoch, and that the key is at work");
    site.clock.advance(Duration::from_secs(1));
    site.local_backend().delist_idle_keys();
    // The next tenure costs one further commit.
    let running =
        site.guard.admit(TestGuard::claim("a", 51), None, &mut wait_limit).await.expect("the newest");
    drop(running);
    assert!(commits(&site) <= 2);
}

/// The futures of an admission can be sent between threads, because a service may handle its requests on any
/// thread.
#[tokio::test]
async fn admission_is_send() {
    fn assert_send<T: Send>(sent: T) -> T {
        sent
    }
    let site = new_test_guard("");
    let mut client = AlwaysWaitingClient;
    let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::from_secs(1));
    let admitted = assert_send(site.guard.admit(TestGuard::claim("a", 50), None, &mut wait_limit)).await;
    let running: AdmittedExecution = assert_send(admitted.expect("the newest"));
    assert_send(running.complete(stored_response(200, None))).await.expect("known");
}

/// The default configuration is that of a policy file without settings of its own.
#[test]
fn default_config_equals_empty_policy() {
    let text = "version: 1\nlistener: {address: 127.0.0.1:8080}\nupstream: {endpoint: \"http://127.0.0.1:8000\"}\n\
                store: {redb: /var/lib/fencegate/guard.redb}\n";
    let plan = load_guard(text).plan.expect("a sound file");
    assert_eq!(format!("{:?}", GuardConfig::from_plan(&plan)), format!("{:?}", GuardConfig::default()));
}
