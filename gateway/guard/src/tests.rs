//! What a guard does by itself, on a clock that goes when told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fencegate_policies::{
    file::load_guard,
    key::ResourceKey,
    operation::{Fingerprint, Operation, OperationId},
    plan::Mode,
    token::Token,
};
use fencegate_process::{clock::ManualClock, families::Families};

use super::{
    Guard, Rules,
    doubt::Running,
    journal::Found,
    metrics::GuardMetrics,
    operation::{self, Entry, Kept},
    patience::{Patience, Staying},
    refused,
    register::Claim,
    reserve::Wanted,
    store::{self, Change, Identity, Redb, Remembered, Store, StoreError, Taken},
    time,
};

/// A store that counts what is committed at once.
struct Counted {
    store: Redb,
    commits: AtomicUsize,
    largest: AtomicUsize,
}

impl Store for Counted {
    fn load(&self, max_execution: Duration) -> Result<Remembered, StoreError> {
        self.store.load(max_execution)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.largest.fetch_max(changes.len(), Ordering::SeqCst);
        self.store.commit(changes)
    }

    fn operation(&self, id: &OperationId) -> Result<Option<Entry>, StoreError> {
        self.store.operation(id)
    }

    fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, StoreError> {
        self.store.unfinished(most)
    }

    fn unfinished_ids(&self, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.store.unfinished_ids(most)
    }

    fn by_reference(&self, reference: &str) -> Result<Option<(OperationId, Entry)>, StoreError> {
        self.store.by_reference(reference)
    }

    fn outlived(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.store.outlived(now, most)
    }

    fn journal(&self) -> Taken {
        self.store.journal()
    }
}

struct Site {
    guard: Arc<Guard>,
    store: Arc<Counted>,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

const DAY: Duration = Duration::from_secs(86_400);

/// A guard with a new store, out of its first quarantine.
fn site(more: &str) -> Site {
    let folder = tempfile::tempdir().expect("a folder");
    let identity = Identity { format: store::FORMAT, store: "s".into(), ensemble: "e".into() };
    drop(Redb::init(&folder.path().join("guard.redb"), &identity, 5).expect("a new store"));
    let clock = Arc::new(ManualClock::default());
    clock.go(DAY);
    let site = opened(folder, clock, more);
    site.clock.go(DAY);
    site.guard.rest();
    site
}

fn opened(folder: tempfile::TempDir, clock: Arc<ManualClock>, more: &str) -> Site {
    let path = folder.path().join("guard.redb");
    let text = format!(
        "version: 1\nlistener: {{address: 127.0.0.1:8080}}\nupstream: {{endpoint: \"http://127.0.0.1:8000\"}}\n\
         store: {{redb: {}}}\n{more}",
        path.display()
    );
    let plan = load_guard(&text).plan.expect("a sound file");
    let store = Redb::open(&path).expect("there");
    let store = Arc::new(Counted { store, commits: AtomicUsize::default(), largest: AtomicUsize::default() });
    let metrics = GuardMetrics::register(&Families::new());
    let rules = Rules::of(&plan);
    let opened = Guard::open(store.clone(), rules, clock.clone(), "i".into(), metrics).expect("readable");
    Site { guard: opened.guard, store, clock, folder }
}

impl Site {
    /// Ends it without a word, and starts another one.
    fn restarted(self) -> Self {
        let Self { guard, store, clock, folder } = self;
        guard.committer.close();
        drop(guard);
        while Arc::strong_count(&store) > 1 {
            std::thread::yield_now();
        }
        drop(store);
        opened(folder, clock, "")
    }

    fn claim(key: &str, epoch: u64) -> Claim {
        let key = ResourceKey::parse(key).expect("a key");
        let token = Token::new(epoch, 1, 1).expect("small");
        Claim { keys: vec![key].into(), token, mode: Mode::Exclusive, era: None }
    }

    /// An operation is done.
    async fn done(&self, number: u64, keep: u64) -> Result<(), refused::Refused> {
        self.done_with(number, keep, None).await
    }

    async fn done_with(&self, number: u64, keep: u64, body: Option<&Bytes>) -> Result<(), refused::Refused> {
        let mut client = Staying;
        let mut patience = Patience::new(&mut client, Duration::from_secs(1));
        let claim = Self::claim("a", 100 + number);
        let wanted = wanted(number, keep, &claim);
        let Found::New(reserved) = self.guard.find(wanted, &mut patience).await? else {
            panic!("{number} is known")
        };
        let running = self.guard.admit(claim, Some(reserved), &mut patience).await?;
        running.answered(answer(200, body)).await
    }

    /// What a repeat of the operation is told.
    async fn replayed(&self, number: u64, keep: u64) -> Kept {
        let mut client = Staying;
        let mut patience = Patience::new(&mut client, Duration::from_secs(1));
        let wanted = wanted(number, keep, &Self::claim("a", 100_000));
        match self.guard.find(wanted, &mut patience).await {
            Ok(Found::Done(kept)) => kept,
            _ => panic!("{number} was done, and its answer is kept"),
        }
    }

    fn is_known(&self, number: u64) -> bool {
        self.store.operation(&id(number)).expect("readable").is_some()
    }
}

fn answer(status: u16, body: Option<&Bytes>) -> Kept {
    Kept { status, fields: Vec::new(), body: body.cloned() }
}

fn id(number: u64) -> OperationId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    OperationId::of(bytes)
}

fn wanted(number: u64, keep: u64, claim: &Claim) -> Wanted {
    Wanted {
        operation: Operation {
            id: id(number),
            former: None,
            fingerprint: Fingerprint::of([1; 32]),
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
async fn an_operation_is_forgotten_after_time_that_was_seen_to_pass_and_not_when_a_wall_clock_says_so() {
    let site = site("");
    site.done(1, 3600).await.expect("done");
    time::AHEAD.set(10 * DAY);
    site.guard.sweep().await.expect("a sound store");
    assert!(site.is_known(1), "forgotten by a wall clock that was set ahead");
    site.clock.go(Duration::from_secs(3599));
    site.guard.sweep().await.expect("a sound store");
    assert!(site.is_known(1));
    // What has passed outlives the process, the time between two of them is nobody's.
    let site = site.restarted();
    time::AHEAD.set(Duration::ZERO);
    site.guard.sweep().await.expect("a sound store");
    assert!(site.is_known(1));
    site.clock.go(Duration::from_secs(3));
    site.guard.sweep().await.expect("a sound store");
    assert!(!site.is_known(1), "its time has passed, whatever the wall clock says");
}

#[tokio::test]
async fn a_no_of_the_upstream_counts_when_time_has_passed_and_not_when_a_wall_clock_says_so() {
    let site = site("");
    let claim = Site::claim("a", 50);
    let mut client = Staying;
    let mut patience = Patience::new(&mut client, Duration::from_secs(1));
    let Ok(Found::New(reserved)) = site.guard.find(wanted(1, 60, &claim), &mut patience).await else {
        panic!("it is new")
    };
    let running = site.guard.admit(claim, Some(reserved), &mut patience).await.expect("the newest");
    // A complete answer that says nothing for certain: the service may be at work still.
    running.answered(answer(502, None)).await.expect("nothing to write");
    let entry = site.store.operation(&id(1)).expect("readable").expect("unknown");
    time::AHEAD.set(DAY);
    assert!(site.guard.may_still_run(&entry), "by a wall clock that was set ahead");
    site.clock.go(site.guard.rules.max_execution + site.guard.rules.send_within + Duration::from_secs(1));
    assert!(!site.guard.may_still_run(&entry));
    time::AHEAD.set(Duration::ZERO);
}

#[tokio::test]
async fn a_no_of_the_upstream_counts_no_part_of_a_second_too_early() {
    let site = site("max_execution: 31500ms\n");
    let longest = site.guard.rules.max_execution + site.guard.rules.send_within;
    // Late in a second of the store's time, so that the next whole one is a tenth of a second away.
    site.clock.go(Duration::from_millis(900));
    let entry = Entry { state: operation::State::Admitted, ..finished(site.guard.time()) };
    site.clock.go(longest - Duration::from_millis(1));
    assert!(site.guard.may_still_run(&entry), "a millisecond is left of it");
    site.clock.go(Duration::from_secs(1));
    assert!(!site.guard.may_still_run(&entry));
}

#[tokio::test]
async fn everything_that_is_outlived_is_forgotten_in_one_sweep_and_in_batches() {
    const MANY: u64 = 2500;
    let site = site("");
    let entry = finished(site.guard.time());
    let change = |number| Change::Operation { id: id(number), entry: entry.clone().into() };
    site.store.store.commit(&(0..MANY).map(change).collect::<Vec<_>>()).expect("written");
    assert_eq!(site.store.journal().entries, MANY);
    site.clock.go(Duration::from_secs(100));
    site.guard.sweep().await.expect("a sound store");
    assert_eq!(site.store.journal(), Taken::default());
    assert!(site.store.largest.load(Ordering::SeqCst) <= 1000);
}

fn finished(at: u64) -> Entry {
    Entry {
        format: 1,
        fingerprint: "ab".repeat(32),
        keys: vec![ResourceKey::parse("a").expect("a key")],
        token: Token::new(7, 0, 1).expect("small"),
        method: "POST".into(),
        target: "/".into(),
        name: None,
        askable: true,
        admitted: 1,
        began: Some(at),
        keep: 50,
        state: operation::State::Done { at, answer: None },
    }
}

#[tokio::test]
async fn a_full_journal_takes_no_new_operation_until_old_ones_have_left_it() {
    let site = site("journal: {max_size: 1KiB}\n");
    let mut taken = 0;
    let refused = loop {
        match site.done(taken, 60).await {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, refused::Refused::JournalFull { most: 1024, .. }), "{refused:?}");
    assert_eq!((refused.word().as_str(), refused.decision()), ("store", "journal-full"));
    assert!((1..20).contains(&taken), "{taken}");
    site.clock.go(Duration::from_secs(62));
    site.guard.sweep().await.expect("a sound store");
    site.done(taken, 60).await.expect("there is room");
}

#[tokio::test]
async fn bodies_of_answers_take_half_of_the_journal_and_leave_the_rest_to_operations() {
    let site = site("journal: {max_size: 16KiB}\n");
    let body = Bytes::from(vec![b'x'; 1024]);
    let mut taken = 0;
    while site.store.journal().bytes < 16 << 10 {
        site.done_with(taken, 60, Some(&body)).await.expect("there is room");
        taken += 1;
        assert!(taken < 100, "it is never full");
    }
    assert!(taken > 20, "with its body, each takes more than a sixteenth: {taken}");
    assert_eq!(site.replayed(0, 60).await.body, Some(body.clone()));
    let last = site.replayed(taken - 1, 60).await;
    assert_eq!((last.status, last.body), (200, None));
    let refused = site.done_with(taken, 60, Some(&body)).await;
    assert!(matches!(refused, Err(refused::Refused::JournalFull { .. })), "{refused:?}");
    site.clock.go(Duration::from_secs(62));
    site.guard.sweep().await.expect("a sound store");
    site.done_with(taken, 60, Some(&body)).await.expect("there is room");
    assert_eq!(site.replayed(taken, 60).await.body, Some(body), "there is room for bodies, too");
}

#[tokio::test]
async fn an_orderly_end_writes_its_marks_in_batches() {
    const KEYS: u64 = 2500;
    let site = site("");
    for number in 0..KEYS {
        let claim = Site::claim(&format!("k{number}"), 100 + number);
        site.guard.lock().register.announce(&claim, site.guard.now()).expect("newer");
    }
    site.guard.leave().await.expect("left");
    assert!(site.store.largest.load(Ordering::SeqCst) <= 1000);
    let marks = site.store.load(DAY).expect("readable").clean_stop.expect("left in order").marks;
    assert_eq!(marks.len() as u64, KEYS);
    assert_eq!(marks.iter().filter(|mark| mark.write.is_some()).count() as u64, KEYS);
}

/// The unit that a dispatch costs is a commit, which all that wait at the same time share.
#[tokio::test]
async fn a_tenure_costs_one_commit_and_its_further_dispatches_none() {
    let site = site("");
    let mut client = Staying;
    let mut patience = Patience::new(&mut client, Duration::from_secs(1));
    let commits = |site: &Site| site.store.commits.swap(0, Ordering::SeqCst);
    site.guard.sweep().await.expect("a sound store");
    commits(&site);
    for dispatch in 1..=100 {
        let claim = Claim { token: Token::new(50, 1, dispatch).expect("small"), ..Site::claim("a", 50) };
        let running = site.guard.admit(claim, None, &mut patience).await.expect("the newest");
        running.answered(answer(200, None)).await.expect("known");
        site.clock.go(Duration::from_millis(200));
        site.guard.rest();
    }
    assert_eq!(commits(&site), 1, "the epoch, and that the key is at work");
    site.clock.go(Duration::from_secs(1));
    site.guard.rest();
    // The next tenure is written behind it, and one write is all that it costs.
    let running = site.guard.admit(Site::claim("a", 51), None, &mut patience).await.expect("the newest");
    drop(running);
    assert!(commits(&site) <= 2);
}

/// A service may have its requests on any thread.
#[tokio::test]
async fn an_admission_can_go_from_thread_to_thread() {
    fn is_sent<T: Send>(sent: T) -> T {
        sent
    }
    let site = site("");
    let mut client = Staying;
    let mut patience = Patience::new(&mut client, Duration::from_secs(1));
    let admitted = is_sent(site.guard.admit(Site::claim("a", 50), None, &mut patience)).await;
    let running: Running = is_sent(admitted.expect("the newest"));
    is_sent(running.answered(answer(200, None))).await.expect("known");
}

#[test]
fn the_rules_without_a_file_are_those_of_a_file_without_rules() {
    let text = "version: 1\nlistener: {address: 127.0.0.1:8080}\nupstream: {endpoint: \"http://127.0.0.1:8000\"}\n\
                store: {redb: /var/lib/fencegate/guard.redb}\n";
    let plan = load_guard(text).plan.expect("a sound file");
    assert_eq!(format!("{:?}", Rules::of(&plan)), format!("{:?}", Rules::default()));
}
