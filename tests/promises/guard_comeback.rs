//! A guard that was killed serves at once every key that was not at work. Only the keys at work wait, for the longest
//! execution, and what the guard has to remember delays no request.
//!
//! A thousand keys are under load. A warm tenure waits for no disk. A shorter `max_execution` shortens no quarantine.
//! Ten thousand unknown operations delay no request.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fencegate_guard_store::{
    operation::{JournalEntryState, OperationJournalEntry},
    store::{GuardStore, RedbStore, StoreMutation},
};
use fencegate_policies::key::ResourceKey;
use fencegate_policies::operation::OperationId;
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome},
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused},
    history::{ATTEMPT, History},
    origin::{Latch, OriginAction, OriginReply},
};
use serde_json::json;

const KEYS: u64 = 1000;
const AT_WORK: u64 = 20;
/// The quarantine of the keys that were at work. All other keys have to be served within this time.
const EXECUTION: Duration = Duration::from_secs(6);
/// Every n-th of the other keys is tried.
const SHOWN: usize = 4;

fn key(number: u64) -> String {
    format!("account/{number}")
}

/// Sends one dispatch for each key, fifty at a time.
async fn dispatch_to_each(
    guard: &Guard,
    keys: impl Iterator<Item = u64>,
    epoch: u64,
    answers: &mut Vec<(String, Option<ClientResponse>)>,
) {
    let keys: Vec<u64> = keys.collect();
    for some in keys.chunks(50) {
        let requests: Vec<_> = some
            .iter()
            .map(|number| {
                let id = format!("{epoch}-{number}");
                let dispatch = StampedRequest::new(&key(*number), epoch + number);
                (id.clone(), guard.begin(dispatch.post("/work").field(ATTEMPT, &id)))
            })
            .collect();
        for (id, pending) in requests {
            answers.push((id, Some(pending.answer().await)));
        }
    }
}

/// A guard killed under load serves idle keys at once, and the keys that were at work after `max_execution`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_guard_quarantines_active_keys_only() {
    let fixture = GuardFixture::new().await;
    let execution = format!("{}s", EXECUTION.as_secs());
    let launch = fixture.launch().await.with("/max_execution", execution).with("/settle", "200ms");
    let launch = launch.with("/upstream/response_timeout", "5s").with("/send_within", "500ms");
    let guard = launch.start().await;
    let mut answers = Vec::new();
    for round in 1..=2 {
        dispatch_to_each(&guard, 0..KEYS, round * 10_000, &mut answers).await;
    }
    let latch = Latch::default();
    fixture
        .origin
        .script("/long", (0..AT_WORK).map(|_| OriginAction::Hold(latch.clone(), OriginReply::ok())));
    let lost: Vec<_> = (0..AT_WORK)
        .map(|number| {
            let id = format!("long-{number}");
            let dispatch = StampedRequest::new(&key(number), 30_000 + number);
            (id.clone(), guard.begin(dispatch.post("/long").field(ATTEMPT, &id)))
        })
        .collect();
    fixture.origin.wait_for_request("/long", usize::try_from(AT_WORK).expect("small")).await;
    // The store records only after a moment that an idle key is no longer at work. The gauge shows it.
    guard.wait_gauge("fencegate_guard_keys_at_work", 20.0).await;
    // When this request is answered, all earlier changes are durable.
    let newer = StampedRequest::new(&key(0), 35_000).post("/newer");
    assert_refused(&guard.send(&newer).await, "busy");
    let last = Instant::now();
    let launch = guard.kill().await;
    for (id, pending) in lost {
        answers.push((id, pending.result().await.ok()));
    }

    let guard = launch.start().await;
    let started = Instant::now();
    let ready = guard.admin("/ready").await;
    assert_eq!(ready.status, 200, "it serves nearly all keys");
    let body = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(body.starts_with("ready; 20 keys were at work at an unclean stop"), "{body}");
    // The tenure from before the kill is refused once, because the guard has lost its last dispatch number.
    let stale = guard.send(&StampedRequest::new(&key(500), 20_500).with_dispatch(2).post("/stale")).await;
    assert_refused(&stale, "stale");
    let before = answers.len();
    dispatch_to_each(&guard, (AT_WORK..KEYS).step_by(SHOWN), 40_000, &mut answers).await;
    println!("{} of {KEYS} keys served {:?} after the start", answers.len() - before, started.elapsed());
    assert!(answers[before..].iter().all(|(_, answer)| answer.as_ref().is_some_and(|a| a.status == 200)));
    // All idle keys were served while these two, which were at work, still wait.
    for number in [0, AT_WORK - 1] {
        let early = guard.send(&StampedRequest::new(&key(number), 40_000 + number).post("/early")).await;
        assert_refused(&early, "quarantine");
        assert_eq!((early.status, early.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    }
    latch.release();
    guard.wait_ready().await;
    assert!(last.elapsed() >= EXECUTION, "over after {:?}", last.elapsed());
    dispatch_to_each(&guard, 0..AT_WORK, 50_000, &mut answers).await;
    assert!(
        answers.iter().rev().take(20).all(|(_, answer)| answer.as_ref().is_some_and(|a| a.status == 200))
    );
    assert_eq!((fixture.origin.count("/stale"), fixture.origin.count("/early")), (0, 0));
    let mut history = History::from_log(&fixture.origin.log());
    for (id, answer) in &answers {
        history.record_answer(id, answer.as_ref());
    }
    history.assert_holds();
}

/// The number of commits so far, from the metrics of the store.
async fn commits(guard: &Guard) -> f64 {
    guard.metrics().await.sum("fencegate_guard_store_seconds_count", &["op=\"commit\""])
}

/// The dispatches of a grant that is recorded already wait for no commit of the store.
#[tokio::test]
async fn recorded_tenure_needs_no_store_commit() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let before = commits(&guard).await;
    for dispatch in 1..=200 {
        assert_eq!(
            guard.send(&StampedRequest::new("a", 20).with_dispatch(dispatch).post("/x")).await.status,
            200
        );
    }
    let taken = commits(&guard).await - before;
    println!("{taken} commits for 200 dispatches of one tenure");
    // One commit is for the tenure. Stalls of this machine may be as long as a rest, and the guard also writes every
    // ten seconds.
    assert!(taken <= 20.0, "{taken}");
}

/// The quarantine lasts for the `max_execution` under which requests were sent, even if it was shortened since.
#[tokio::test]
async fn quarantine_outlasts_shortened_max_execution() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/max_execution", "3s").with("/send_within", "100ms");
    let launch = launch.with("/upstream/response_timeout", "200ms").with("/settle", "100ms");
    let guard = launch.with_permanent_quarantine().start().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/x")).await.status, 200);
    let killed = Instant::now();
    let launch = guard.kill().await.with("/max_execution", "300ms");
    // A start in between, killed before the quarantine has passed, does not shorten the quarantine.
    let launch = launch.start().await.kill().await;
    let guard = launch.start().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/early")).await, "quarantine");
    guard.wait_ready().await;
    assert!(killed.elapsed() >= Duration::from_secs(3), "over after {:?}", killed.elapsed());
    assert_eq!(fixture.origin.count("/early"), 0);
}

/// `/ready` of a guard with a new store names the new store as its reason, and no crash.
#[tokio::test]
async fn new_store_is_reported_as_new() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.uninitialized_launch().init(10).start().await;
    let ready = guard.admin("/ready").await;
    let body = String::from_utf8_lossy(&ready.body).into_owned();
    assert_eq!(ready.status, 503, "{body}");
    assert!(body.contains("the store is new") && !body.contains("unclean"), "{body}");
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/early")).await, "quarantine");
}

const UNKNOWN: u64 = 10_000;

/// Writes operations of unknown outcome into the store of a guard.
async fn store_unknown_operations(launch: GuardLaunch) -> GuardLaunch {
    let launch = launch.start().await.stop().await;
    let store = RedbStore::open(&launch.store()).expect("left in order");
    let entry = |number: u64| OperationJournalEntry {
        format: 1,
        fingerprint: format!("{number:064x}"),
        keys: vec![ResourceKey::parse(&format!("old/{number}")).expect("a key")],
        token: StampedRequest::new("old", 20 + number).token(),
        method: "POST".into(),
        target: "/pay".into(),
        name: Some(format!("\"old-{number}\"")),
        askable: true,
        admitted: 1,
        began: Some(1),
        keep: 60,
        state: JournalEntryState::Admitted,
    };
    let id = |number: u64| {
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&(number << 20).to_be_bytes());
        OperationId::from_bytes(bytes)
    };
    let changes: Vec<_> = (0..UNKNOWN)
        .map(|number| StoreMutation::Operation { id: id(number), entry: entry(number).into() })
        .collect();
    store.commit(&changes).expect("written");
    launch
}

/// Ten thousand operations of unknown outcome delay no other request. An outage of the service has left them, and the
/// outage goes on: each lost answer makes the guard query the probe.
#[tokio::test]
async fn unknown_operations_delay_no_request() {
    const DOUBTS: u64 = 20;
    let fixture = GuardFixture::new().await;
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404]});
    let launch = fixture.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
    let launch = store_unknown_operations(launch).await;
    let guard = launch.start().await;
    fixture.origin.script("/broken", (0..DOUBTS).map(|_| OriginAction::Reset));
    for number in 0..DOUBTS {
        let dispatch =
            StampedRequest::new(&format!("broken/{number}"), 50_000 + number).once(90_000 + number);
        guard.send(&dispatch.post("/broken")).await;
    }
    let mut slowest = Duration::ZERO;
    let began = Instant::now();
    let mut served = BTreeSet::new();
    while began.elapsed() < Duration::from_secs(2) {
        let number = u64::try_from(served.len()).expect("small");
        let sent_at = Instant::now();
        let answer =
            guard.send(&StampedRequest::new(&format!("other/{number}"), 60_000 + number).post("/x")).await;
        assert_eq!(answer.status, 200);
        slowest = slowest.max(sent_at.elapsed());
        served.insert(number);
    }
    println!("{} served beside {UNKNOWN} unknown operations, the slowest in {slowest:?}", served.len());
    assert!(slowest < Duration::from_millis(700), "{slowest:?}");
    let listed = guard.admin_json("/api/v1/operations").await;
    assert!(listed["operations"].as_array().expect("a list").len() >= 1000);
}
