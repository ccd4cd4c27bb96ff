//! A guard that was killed comes back at once for keys that nothing was at work on, and what it has to remember bounds it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fencegate_guard::{
    operation::{JournalEntry, State},
    store::{Change, RedbStore, Store},
};
use fencegate_policies::key::ResourceKey;
use fencegate_policies::operation::OperationId;
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome},
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused},
    history::{ATTEMPT, History},
    origin::{Act, Latch, OriginReply},
};
use serde_json::json;

const KEYS: u64 = 1000;
const AT_WORK: u64 = 20;
/// The quarantine of the keys that were at work. The other keys have to be served within this time.
const EXECUTION: Duration = Duration::from_secs(10);
/// Every n-th of the other keys is tried.
const SHOWN: usize = 4;

fn key(number: u64) -> String {
    format!("account/{number}")
}

/// Sends one dispatch for each key, fifty at a time.
async fn each(
    guard: &Guard,
    keys: impl Iterator<Item = u64>,
    epoch: u64,
    told: &mut Vec<(String, Option<ClientResponse>)>,
) {
    let keys: Vec<u64> = keys.collect();
    for some in keys.chunks(50) {
        let begun: Vec<_> = some
            .iter()
            .map(|number| {
                let id = format!("{epoch}-{number}");
                let dispatch = StampedRequest::new(&key(*number), epoch + number);
                (id.clone(), guard.begin(dispatch.post("/work").field(ATTEMPT, &id)))
            })
            .collect();
        for (id, pending) in begun {
            told.push((id, Some(pending.answer().await)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_it_serves_at_once_what_was_not_at_work_and_the_rest_when_that_is_over() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/max_execution", "10s").with("/settle", "200ms");
    let launch = launch.with("/upstream/response_timeout", "9s").with("/send_within", "500ms");
    let guard = launch.start().await;
    let mut told = Vec::new();
    for round in 1..=2 {
        each(&guard, 0..KEYS, round * 10_000, &mut told).await;
    }
    let latch = Latch::default();
    beside.origin.script("/long", (0..AT_WORK).map(|_| Act::Hold(latch.clone(), OriginReply::ok())));
    let lost: Vec<_> = (0..AT_WORK)
        .map(|number| {
            let id = format!("long-{number}");
            let dispatch = StampedRequest::new(&key(number), 30_000 + number);
            (id.clone(), guard.begin(dispatch.post("/long").field(ATTEMPT, &id)))
        })
        .collect();
    beside.origin.request("/long", usize::try_from(AT_WORK).expect("small")).await;
    // A key that has rested for a moment is no longer at work. The store learns that later.
    guard.wait_gauge("fencegate_guard_keys_at_work", 20.0).await;
    // When this request is answered, all earlier changes are durable.
    let newer = StampedRequest::new(&key(0), 35_000).post("/newer");
    assert_refused(&guard.send(&newer).await, "busy");
    let last = Instant::now();
    let launch = guard.kill().await;
    for (id, pending) in lost {
        told.push((id, pending.result().await.ok()));
    }

    let guard = launch.start().await;
    let started = Instant::now();
    let ready = guard.admin("/ready").await;
    assert_eq!(ready.status, 200, "it serves nearly all keys");
    let said = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(said.starts_with("ready; 20 keys were at work at an unclean stop"), "{said}");
    // The tenure from before the kill is refused once, because the guard does not know its last dispatch number.
    let stale = guard.send(&StampedRequest::new(&key(500), 20_500).with_dispatch(2).post("/stale")).await;
    assert_refused(&stale, "stale");
    let before = told.len();
    each(&guard, (AT_WORK..KEYS).step_by(SHOWN), 40_000, &mut told).await;
    println!("{} of {KEYS} keys served {:?} after the start", told.len() - before, started.elapsed());
    assert!(told[before..].iter().all(|(_, answer)| answer.as_ref().is_some_and(|a| a.status == 200)));
    // All of those keys were served while these two still wait.
    for number in [0, AT_WORK - 1] {
        let early = guard.send(&StampedRequest::new(&key(number), 40_000 + number).post("/early")).await;
        assert_refused(&early, "quarantine");
        assert_eq!((early.status, early.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    }
    latch.release();
    guard.wait_ready().await;
    assert!(last.elapsed() >= EXECUTION, "over after {:?}", last.elapsed());
    each(&guard, 0..AT_WORK, 50_000, &mut told).await;
    assert!(told.iter().rev().take(20).all(|(_, answer)| answer.as_ref().is_some_and(|a| a.status == 200)));
    assert_eq!((beside.origin.count("/stale"), beside.origin.count("/early")), (0, 0));
    let mut history = History::from_log(&beside.origin.log());
    for (id, answer) in &told {
        history.record_answer(id, answer.as_ref());
    }
    history.assert_holds();
}

/// Commits so far, by what the store has measured.
async fn commits(guard: &Guard) -> f64 {
    guard.metrics().await.sum("fencegate_guard_store_seconds_count", &["op=\"commit\""])
}

#[tokio::test]
async fn the_dispatches_of_a_warm_tenure_wait_for_no_disk() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
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

#[tokio::test]
async fn quarantine_lasts_as_long_as_what_was_sent_under_a_longer_time() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/max_execution", "3s").with("/send_within", "100ms");
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
    assert_eq!(beside.origin.count("/early"), 0);
}

#[tokio::test]
async fn a_new_store_says_that_it_is_new() {
    let beside = GuardFixture::new().await;
    let guard = beside.uninitialized_launch().init(10).start().await;
    let ready = guard.admin("/ready").await;
    let said = String::from_utf8_lossy(&ready.body).into_owned();
    assert_eq!(ready.status, 503, "{said}");
    assert!(said.contains("the store is new") && !said.contains("unclean"), "{said}");
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/early")).await, "quarantine");
}

const UNKNOWN: u64 = 10_000;

/// A store with operations of unknown outcome.
async fn with_unknown(launch: GuardLaunch) -> GuardLaunch {
    let launch = launch.start().await.stop().await;
    let store = RedbStore::open(&launch.store()).expect("left in order");
    let entry = |number: u64| JournalEntry {
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
        state: State::Admitted,
    };
    let id = |number: u64| {
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&(number << 20).to_be_bytes());
        OperationId::from_bytes(bytes)
    };
    let changes: Vec<_> = (0..UNKNOWN)
        .map(|number| Change::Operation { id: id(number), entry: entry(number).into() })
        .collect();
    store.commit(&changes).expect("written");
    launch
}

/// An outage of the service has left these operations, and the outage goes on. Each lost answer makes the guard ask
/// the probe.
#[tokio::test]
async fn ten_thousand_unknown_operations_keep_nobody_waiting() {
    const DOUBTS: u64 = 20;
    let beside = GuardFixture::new().await;
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404]});
    let launch = beside.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
    let launch = with_unknown(launch).await;
    let guard = launch.start().await;
    beside.origin.script("/broken", (0..DOUBTS).map(|_| Act::Reset));
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
        let asked = Instant::now();
        let answer =
            guard.send(&StampedRequest::new(&format!("other/{number}"), 60_000 + number).post("/x")).await;
        assert_eq!(answer.status, 200);
        slowest = slowest.max(asked.elapsed());
        served.insert(number);
    }
    println!("{} served beside {UNKNOWN} unknown operations, the slowest in {slowest:?}", served.len());
    assert!(slowest < Duration::from_millis(700), "{slowest:?}");
    let listed = guard.admin_json("/api/v1/operations").await;
    assert!(listed["operations"].as_array().expect("a list").len() >= 1000);
}
